"""The conductor leads a run through its phases: cold calls, then for each step a warm-up and a measurement.

The conductor runs in Locust's only process or, with several processes, in Locust's master, which sends messages to the
workers.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import gevent
from locust.runners import STATE_RUNNING, MasterRunner

from cohost.report.run import ColdCall, Phase
from cohost.report.samples import Outcome
from load_tests.phases import SPAWN_RATE, first_calls, wake_up
from load_tests.stage import Cue, now, shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from locust.runners import Runner

    from cohost.report.run import PhaseKind
    from load_tests.phases import Step
    from load_tests.session import Session


_logger = logging.getLogger("load_tests")

BEGIN, END = "cohost-begin", "cohost-end"
POLL_S = 0.05
EVERYBODY = 1_000_000


class Conductor:
    """The conductor of one run. `phases` holds the phases that have ended, `running` the current phase.

    `prepared` returns True if every process can make calls; `progress` is called at the start of each phase.
    """

    def __init__(
        self,
        runner: Runner,
        session: Session,
        steps: Sequence[Step],
        *,
        prepared: Callable[[], bool],
        progress: Callable[..., None],
    ) -> None:
        self.phases: list[Phase] = []
        self.cold: tuple[ColdCall, ...] = ()
        self.running: Phase | None = None
        self.completed = False
        self._runner = runner
        self._session = session
        self._steps = steps
        self._prepared = prepared
        self._progress = progress

    def run(self, *, cold: bool, wake_limit_s: float | None) -> None:
        """Run all phases; measure nothing if the target stays at zero copies or no model answers its first call.

        With `wake_limit_s`, first wait up to that many seconds until an inference component at zero copies has started
        a copy.
        """
        while not self._prepared():
            gevent.sleep(POLL_S)
        if wake_limit_s is not None and not self._wake(wake_limit_s):
            return
        if cold and not self._cold():
            return
        self._gather_users(max(step.concurrency for step in self._steps))
        for index, step in enumerate(self._steps):
            if step.settle:
                self._phase(step, index, "warm-up", step.settle)
            if step.seconds is None:
                self._until_stopped(step, index)
            else:
                self._phase(step, index, "measured", step.seconds)
        self.completed = True

    def finish(self) -> None:
        """End the current phase, if there is one."""
        if self.running is None:
            return
        self._runner.send_message(END, {})
        self.phases.append(self.running.model_copy(update={"ended": now()}))
        self.running = None

    def _wake(self, limit_s: float) -> bool:
        with self._alone("waking"):
            return wake_up(self._session, len(self.phases), self._steps[0].batch, limit_s)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Record the calls made inside the `with` block, one after the other by this process, as a phase."""
        started, batch = now(), self._steps[0].batch
        self._progress(phase=name, step=0, steps=len(self._steps), seconds=None)
        yield
        self.phases.append(Phase(name=name, kind="cold", batch=batch, concurrency=1, started=started, ended=now()))

    def _cold(self) -> bool:
        with self._alone("first calls"):
            self.cold = first_calls(self._session, len(self.phases), self._steps[0].batch)
        for call in self.cold:
            if call.failure:
                hint = "; --wake waits for a copy" if call.failure.startswith(Outcome.NO_CAPACITY.label) else ""
                _logger.error("the first call of %s failed: %s%s", call.model, call.failure, hint)
            else:
                _logger.info("the first call of %s took %.2f s", call.model, call.first_s)
        return any(call.failure is None for call in self.cold)

    def _gather_users(self, needed: int) -> None:
        """Wait until Locust has started `needed` users, or more if a higher number was requested."""
        if self._runner.target_user_count < needed:
            self._runner.start(needed, spawn_rate=SPAWN_RATE)
        while self._runner.state != STATE_RUNNING or self._runner.user_count < needed:
            gevent.sleep(POLL_S)

    def _phase(self, step: Step, index: int, kind: PhaseKind, seconds: float) -> None:
        self._begin(step, index, kind, seconds)
        gevent.sleep(seconds)
        self.finish()

    def _begin(self, step: Step, index: int, kind: PhaseKind, seconds: float | None) -> None:
        _logger.info("step %d of %d: %s, %s", index + 1, len(self._steps), step.name, kind)
        load = {"batch": step.batch, "concurrency": step.concurrency, "rate": step.rate}
        self.running = Phase(name=step.name, kind=kind, started=now(), ended=0, **load)
        self._progress(phase=f"{step.name} {kind}", step=index + 1, steps=len(self._steps), seconds=seconds)
        self._cue(step, kind)

    def _until_stopped(self, step: Step, index: int) -> NoReturn:
        """Measure until this greenlet is stopped; begin a new phase if the number of users on Locust's page changes."""
        while True:
            self._begin(step, index, "measured", None)
            while self._runner.target_user_count == step.concurrency:
                gevent.sleep(POLL_S)
            self.finish()
            step = replace(step, concurrency=self._runner.target_user_count)
            self._gather_users(step.concurrency)

    def _cue(self, step: Step, kind: str) -> None:
        nodes = self._nodes()
        callers = shares(step.concurrency, [users for _, users in nodes])
        for rank, ((client, _), own) in enumerate(zip(nodes, callers, strict=True)):
            part = None if step.rate is None else step.rate * own / max(1, sum(callers))
            cue = Cue(
                phase=len(self.phases),
                kind=kind,
                name=step.name,
                batch=step.batch,
                # All users take part in a step without an end, including users that Locust starts during the step.
                callers=own if step.seconds is not None else EVERYBODY,
                rate=part,
                rank=rank,
                seed=self._session.seed,
            )
            self._runner.send_message(BEGIN, cue.message(), client)

    def _nodes(self) -> list[tuple[str | None, int]]:
        """Return each process that makes calls: its Locust id (None for this process) and its number of users."""
        if isinstance(self._runner, MasterRunner):
            active = self._runner.clients.running + self._runner.clients.spawning + self._runner.clients.ready
            return [(client.id, client.user_count) for client in sorted(active, key=lambda client: client.id)]
        return [(None, self._runner.user_count)]
