"""The state of one process that makes calls: the target, the payloads, and the calls of its users."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Any

import gevent

from cohost.report.samples import Outcome
from load_tests.recorder import Verdict, judge
from load_tests.stage import Stage, deck, now
from load_tests.transport import Exchange, Transport

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from locust.env import Environment

    from load_tests.payloads import Book, Payload
    from load_tests.recorder import Recorder
    from load_tests.stage import Phase
    from load_tests.targets import Resolved

NEVER = float("nan")
PAUSE_S = 0.1


class CallFailed(Exception):  # noqa: N818 - Locust prints the class's name in its table of failures
    """A call failed; the error's text (kind of failure, HTTP status) is the name under which Locust counts it."""


class Session:
    """The calls of all users of one process in a run.

    `books` holds the payloads of each model. `single` is True if only one step is measured; Locust's statistics then
    show a model's name without the step's name. `rank` is the number of this process in the run.
    """

    def __init__(self, environment: Environment, resolved: Resolved, books: Sequence[Book], recorder: Recorder) -> None:
        self.resolved = resolved
        self.books = books
        self.stage = Stage()
        self.single = True
        self.rank = 0
        options: Any = environment.parsed_options
        self.seed: int = options.seed
        self.transport = Transport(resolved, options.timeout)
        self._recorder = recorder
        self._request: Any = environment.events.request
        self._free: list[int] = []
        self._slots = itertools.count()

    def enter(self) -> int:
        """Return a number for a new user, the lowest that no other user of this process has."""
        return heapq.heappop(self._free) if self._free else next(self._slots)

    def leave(self, slot: int) -> None:
        """Release the number of a user that stops."""
        heapq.heappush(self._free, slot)

    def play(self, slot: int) -> None:
        """Make one user's calls, one after the other, in every phase until the user's greenlet is stopped."""
        while True:
            phase = self.stage.wait(slot)
            if phase is not None:
                self._play(phase, self._draw(phase, slot))

    def _play(self, phase: Phase, draw: Iterator[tuple[int, Payload]]) -> None:
        while phase.ends is None:
            planned = phase.next_due()
            if planned is not None and not self._wait_until(planned, phase):
                return
            model, payload = next(draw)
            exchange, verdict = self.call(phase.cue.phase, model, payload, planned)
            if exchange.broken is Outcome.CONNECTION and planned is None:
                # The target did not answer; calling again at once would only measure how fast it fails.
                gevent.sleep(PAUSE_S)
            if phase.cue.kind == "measured":
                self._report(phase, model, exchange, verdict, planned)

    def _wait_until(self, planned: float, phase: Phase) -> bool:
        """Sleep until a planned moment; return False if the phase ended earlier.

        If False is returned, `Stage.end` has already reported the moment as one without a call, unless it lies after
        the phase's end.
        """
        phase.pending.append(planned)
        while (left := planned - now()) > 0 and phase.ends is None:
            # Short sleeps, so that a user that waits for a late arrival sees the end of the phase.
            gevent.sleep(min(left, 1.0))
        if phase.ends is not None:
            return False
        phase.pending.remove(planned)
        return True

    def _draw(self, phase: Phase, slot: int) -> Iterator[tuple[int, Payload]]:
        seed = f"{self.seed} {phase.cue.phase} {phase.cue.rank} {slot}"
        models = deck([model.weight for model in self.resolved.models], seed)
        for position, model in enumerate(models, start=slot * 7):
            payloads = self.books[model].payloads[phase.cue.batch]
            yield model, payloads[position % len(payloads)]

    def call(self, phase: int, model: int, payload: Payload, planned: float | None = None) -> tuple[Exchange, Verdict]:
        """Make one call and record it. `planned` is the moment at which the call was due; None in a closed load."""
        self.stage.in_flight += 1
        started, exchange = now(), None
        try:
            exchange = self.transport.send(self.resolved.destinations[model], payload.body)
        finally:
            self.stage.in_flight -= 1
            if exchange is None:  # Locust stopped the user of this call, so its latency is unknown
                due = started if planned is None else planned
                self._recorder.add((due, started, now(), phase, model, payload.items, 0, Outcome.UNFINISHED, self.rank))
        verdict = self._judge(exchange, payload, self.resolved.models[model].task)
        # In a closed load a call is due when it is sent: the time for its signature does not count.
        due = exchange.sent if planned is None else planned
        self._recorder.add(
            (due, exchange.sent, exchange.done, phase, model, payload.items, verdict.status, verdict.outcome, self.rank)
        )
        return exchange, verdict

    def miss(self, phase: int, moments: Sequence[float]) -> None:
        """Record calls of a phase that were due and never sent, under model 0, since no model was drawn for them."""
        for planned in moments:
            self._recorder.add((planned, NEVER, NEVER, phase, 0, 1, 0, Outcome.UNSENT, self.rank))

    def _judge(self, exchange: Exchange, payload: Payload, task: str) -> Verdict:
        if exchange.broken is not None:
            return Verdict(exchange.broken, 0, exchange.detail)
        container = self.resolved.container
        return judge(
            exchange.status, exchange.error_type, exchange.body, task=task, items=payload.items, container=container
        )

    def _report(self, phase: Phase, model: int, exchange: Exchange, verdict: Verdict, planned: float | None) -> None:
        name = self.resolved.models[model].name
        since = exchange.sent if planned is None else planned
        self._request.fire(
            request_type="invoke",
            name=name if self.single else f"{name} {phase.cue.name}",
            response_time=(exchange.done - since) * 1000,
            response_length=len(exchange.body),
            exception=None if verdict.outcome is Outcome.OK else CallFailed(verdict.failure),
            context={},
        )
