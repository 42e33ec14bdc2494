"""Connect a run to Locust's events, in a single process, a master or a worker."""

from __future__ import annotations

import gc
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
from locust.runners import LocalRunner, MasterRunner, WorkerRunner

from cohost.report.endpoint_metrics import metrics_of
from cohost.report.reloads import reload_marks
from cohost.report.run import save_run
from load_tests import phases as plan
from load_tests.conductor import BEGIN, END, Conductor
from load_tests.payloads import Wanted, make_book
from load_tests.recorder import Recorder
from load_tests.result import EXIT_INVALID, exit_code, make_run, metrics_session, new_folder
from load_tests.session import Session
from load_tests.stage import Cue, now
from load_tests.targets import resolve
from load_tests.validity import ENDED_EARLY, NO_ANSWER, marks_of, watch

if TYPE_CHECKING:
    from locust.env import Environment

    from cohost.report.run import Mark, Run

_logger = logging.getLogger("load_tests")

FINISH, PART, PREPARED = "cohost-finish", "cohost-part", "cohost-prepared"
PROGRESS_FILE = "progress.json"
INTERRUPTED_DRAIN_S = 1.0
PART_KEY = "cohost"


class Lifecycle:
    """One process's part of a load test: created when Locust is ready, and driven by Locust's events."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.options: Any = environment.parsed_options
        self.runner: Any = environment.runner
        self.recorder = Recorder()
        self.session: Session = self._prepare()
        self._conductor: Conductor | None = None
        self._leader: Any = None
        self._folder: Path | None = None
        self._parts: dict[str, int] = {}
        self._prepared: set[str] = set()
        self._interrupted = False
        self._listen()

    def _prepare(self) -> Session:
        plan.check(self.options)
        resolved = resolve(self.options)
        self.wanted = Wanted(
            seed=self.options.seed,
            pad_to_max=self.options.pad_to_max,
            max_length=self.options.max_length,
            texts=Path(self.options.texts) if self.options.texts else None,
            hubs=tuple(map(Path, self.options.hub or ())),
        )
        batches = plan.batches(self.options)
        pairs = zip(resolved.models, resolved.revisions, strict=True)
        books = [make_book(m.name, m.task, m.model_id, revision, self.wanted, batches) for m, revision in pairs]
        if self.options.headless:
            self._choose_users()
        session = Session(self.environment, resolved, books, self.recorder)
        session.single = len(plan.steps(self.options, 1)) == 1
        # Objects that exist by now stay, so the garbage collector does not visit them during a measurement.
        gc.collect()
        gc.freeze()
        return session

    def _choose_users(self) -> None:
        """Set the number of users and the spawn rate, unless their options are given.

        Locust's default spawn rate, one user per second, is too slow: measuring begins once all users run.
        """
        if self.options.num_users is None:
            self.options.num_users = plan.default_users(self.options.rate)
        if self.options.spawn_rate is None:
            self.options.spawn_rate = plan.SPAWN_RATE

    @property
    def leads(self) -> bool:
        """Return True if this process leads the run, as the only process or as the master."""
        return isinstance(self.runner, LocalRunner | MasterRunner)

    def _listen(self) -> None:
        events: Any = self.environment.events
        events.test_stopping.add_listener(self._on_stopping)
        events.quitting.add_listener(self._on_quitting)
        if self.leads:
            events.test_start.add_listener(self._on_start)
            events.test_stop.add_listener(self._on_stop)
        if isinstance(self.runner, MasterRunner):
            events.worker_report.add_listener(self._on_report)
            self.runner.register_message(PART, self._on_part)
            self.runner.register_message(PREPARED, self._on_prepared)
        else:
            gevent.spawn(watch, self.recorder.tick, lambda: self.session.rank)
            self.runner.register_message(BEGIN, self._on_begin)
            self.runner.register_message(END, self._on_end)
        if isinstance(self.runner, WorkerRunner):
            events.report_to_master.add_listener(self._on_report_to_master)
            self.runner.register_message(FINISH, self._on_finish, concurrent=True)
            self.runner.send_message(PREPARED, {})

    def _all_prepared(self) -> bool:
        """Return True if every worker has found the run's target, so that it can make calls.

        Locust itself reports a worker as ready as soon as the worker is connected.
        """
        return (
            isinstance(self.runner, LocalRunner) or {client.id for client in self.runner.clients.all} <= self._prepared
        )

    def _on_prepared(self, msg: Any, **_: object) -> None:  # `msg` is a message of Locust
        self._prepared.add(msg.node_id)

    # Events of the process that leads the run.

    def _on_start(self, **_: object) -> None:
        self.recorder.clear()
        self._parts.clear()
        self._folder = new_folder(self.options, taken=self._folder is not None)
        self._folder.mkdir(parents=True, exist_ok=True)
        steps = plan.steps(self.options, self.runner.target_user_count or self.options.num_users or 1)
        self._conductor = Conductor(
            self.runner, self.session, steps, prepared=self._all_prepared, progress=self._progress
        )
        self._leader = gevent.spawn(self._lead, self._conductor)

    def _lead(self, conductor: Conductor) -> None:
        limit_s = self.options.wake_timeout if self.options.wake else None
        conductor.run(cold=not self.options.skip_cold, wake_limit_s=limit_s)
        # Locust ends the run in another greenlet, because the end stops the greenlet of this method.
        gevent.spawn(self.runner.quit if self.options.headless else self.runner.stop)

    def _on_stopping(self, **_: object) -> None:
        """Wait for calls without an answer yet, before Locust stops their users."""
        if self._leader is not None:
            self._leader.kill(block=True)
        if self._conductor is not None:
            self._conductor.finish()
        limit = INTERRUPTED_DRAIN_S if self._interrupted else self.options.timeout + 1
        if isinstance(self.runner, LocalRunner):
            self.session.stage.drain(limit)
        elif isinstance(self.runner, MasterRunner):
            self._gather(limit)

    def _gather(self, limit: float) -> None:
        """Tell all workers to end the run, and wait for the last samples of each worker."""
        waited_for = {client.id for client in self.runner.clients.all}
        self._parts.clear()
        self.runner.send_message(FINISH, {"limit": limit})
        deadline = now() + limit + 5
        while waited_for - set(self._parts) and now() < deadline:
            gevent.sleep(0.05)
            waited_for &= {client.id for client in self.runner.clients.all} | set(self._parts)

    def _on_stop(self, **_: object) -> None:
        """Write the run's result to its folder, and set the exit code."""
        conductor, folder = self._conductor, self._folder
        if conductor is None or folder is None:
            return
        self._conductor = None
        (folder / PROGRESS_FILE).unlink(missing_ok=True)
        if not conductor.phases:
            _logger.error("%s: the run ended before its first call was answered%s", NO_ANSWER, ENDED_EARLY)
            self.environment.process_exit_code = EXIT_INVALID
            return
        run = make_run(
            self.options,
            self.session,
            conductor,
            self.recorder,
            folder,
            payloads=self.wanted.description,
            processes=max(1, len(self._parts)),
            connections=self.session.transport.connections_opened + sum(self._parts.values()),
        )
        marks = self._marks(run, conductor)
        save_run(replace(run, record=run.record.model_copy(update={"marks": tuple(marks)})))
        for mark in marks:
            (_logger.error if mark.invalid else _logger.warning)("%s: %s", mark.code, mark.message)
        _logger.info("the result is in %s; see it with `cohost report %s`", folder, folder)
        self.environment.process_exit_code = exit_code(marks)

    def _marks(self, run: Run, conductor: Conductor) -> list[Mark]:
        endless = self.options.measure is None and conductor.phases[-1].kind == "measured" and not self._interrupted
        marks = marks_of(
            run,
            complete=conductor.completed or endless,
            max_error_rate=self.options.max_error_rate,
            p99_below=self.options.p99_below,
        )
        return marks + reload_marks(run, metrics_of(run, metrics_session()))

    def _on_quitting(self, **_: object) -> None:
        """Save the samples so far when Locust quits during a run, by Ctrl-C or a signal."""
        if self.leads and self._conductor is not None:
            self._interrupted = True
            self.runner.stop()
        elif isinstance(self.runner, WorkerRunner):
            self._send_part()

    def _progress(self, **facts: object) -> None:
        if self._folder is not None:
            (self._folder / PROGRESS_FILE).write_text(json.dumps({**facts, "since": now()}))

    def _on_report(self, client_id: str, data: dict[str, Any]) -> None:
        if PART_KEY in data:
            # A worker's PREPARED message may have come before this process listened; its reports come repeatedly.
            self._prepared.add(client_id)
            self.recorder.receive(data.pop(PART_KEY))

    def _on_part(self, msg: Any, **_: object) -> None:  # `msg` is a message of Locust
        self.recorder.receive(msg.data)
        self._parts[msg.node_id] = msg.data["connections"]

    # Events of a process that makes calls.

    def _on_begin(self, msg: Any, **_: object) -> None:  # `msg` is a message of Locust
        cue = Cue(**msg.data)
        self.session.rank = cue.rank
        self.session.stage.begin(cue)

    def _on_end(self, **_: object) -> None:
        phase = self.session.stage.phase
        if phase is not None:
            self.session.miss(phase.cue.phase, self.session.stage.end())

    def _on_report_to_master(self, data: dict[str, Any], **_: object) -> None:
        data[PART_KEY] = self.recorder.take()

    def _on_finish(self, msg: Any, **_: object) -> None:  # `msg` is a message of Locust
        self.session.stage.drain(msg.data["limit"])
        self._send_part()

    def _send_part(self) -> None:
        """Send this process's last samples and number of connections to the master."""
        opened = self.session.transport.connections_opened
        self.runner.send_message(PART, {**self.recorder.take(), "connections": opened})
