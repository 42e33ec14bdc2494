"""A whole load test in this process and in virtual time, against a target whose behaviour is known in closed form.

Everything of `load_tests` runs but for Locust's own processes and the network: options, lifecycle, conductor, users,
recorder and marks. Time passes only while every greenlet waits, so a busy machine changes no number.
"""

from __future__ import annotations

import heapq
import itertools
import json
import logging
import os
import platform
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

# Without this, Locust replaces the sockets and threads of the whole test process when it is imported.
os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"
from locust.argument_parser import get_parser
from locust.runners import STATE_RUNNING, LocalRunner

del os.environ["LOCUST_SKIP_MONKEY_PATCH"]

from cohost.report.run import load_run
from cohost.report.samples import Outcome
from cohost.report.summary import summarise
from load_tests import conductor, lifecycle, phases, session, stage, transport, validity
from load_tests.options import add_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from cohost.report.run import Run
    from cohost.report.summary import Line

START = 1_800_000_000.0
# Python asks a process for the machine's name once and keeps the answer.
platform.platform(terse=True)
CLASSES = json.dumps([{"label": "a", "score": 0.9}]).encode()


class VirtualTime:
    """A clock, and the greenlets that wait for its moments."""

    def __init__(self) -> None:
        self.at = START
        self._waiting: list[tuple[float, int, list[Any]]] = []
        self._order = itertools.count()
        self._main = getcurrent()
        self._all: list[greenlet] = []

    def now(self) -> float:
        """The virtual moment."""
        return self.at

    def spawn(self, function: Callable[..., object], *arguments: object) -> Spawned:
        """Start a greenlet at this moment."""
        found = greenlet(lambda: _until_killed(function, arguments), parent=self._main)
        self._all.append(found)
        self._wake_at(self.at, found)
        return Spawned(found)

    def sleep(self, seconds: float = 0) -> None:
        """Wait in virtual time."""
        self._wake_at(self.at + seconds, getcurrent())
        self._main.switch()

    def wait(self, waiters: list[list[Any]], timeout: float | None) -> None:
        """Wait until another greenlet calls `wake` with these waiters, or for the time-out."""
        entry = self._wake_at(self.at + (1e9 if timeout is None else timeout), getcurrent())
        waiters.append(entry)
        self._main.switch()

    def wake(self, waiters: list[list[Any]]) -> None:
        """Continue greenlets at this moment instead of at their time-outs."""
        for entry in waiters:
            if entry[0] is not None:
                self._wake_at(self.at, entry[0])
                entry[0] = None

    def run(self, done: Callable[[], bool], most_s: float) -> None:
        """Let time pass until the condition holds; then end all greenlets."""
        while not done():
            at, _, entry = heapq.heappop(self._waiting)
            assert at < START + most_s, "the run does not end"
            self.at = max(self.at, at)
            woken, entry[0] = entry[0], None
            if woken is not None and not woken.dead:
                woken.switch()
        for one in self._all:
            if not one.dead:
                one.throw(GreenletExit)

    def _wake_at(self, at: float, waiting: greenlet) -> list[Any]:
        entry: list[Any] = [waiting]
        heapq.heappush(self._waiting, (at, next(self._order), entry))
        return entry


def _until_killed(function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    try:
        function(*arguments)
    except GreenletExit:
        return


@dataclass
class Spawned:
    """A started greenlet, with gevent's method to end one."""

    greenlet: greenlet

    def kill(self, *, block: bool = True) -> None:
        """End the greenlet where it waits."""
        assert block
        if not self.greenlet.dead and self.greenlet is not getcurrent():
            parent, self.greenlet.parent = self.greenlet.parent, getcurrent()
            self.greenlet.throw(GreenletExit)
            self.greenlet.parent = parent if not self.greenlet.dead else self.greenlet.parent


@dataclass
class Target:
    """A target. `behaviour` returns the latency of the n-th call, from 0, that begins after so many seconds of the run.

    `fail_every`: the n by which each n-th call gets 503. `workers`: the most calls that are worked on at once; 0: any
    number. A `silent` target never answers. `bodies` has the bodies of all calls in order.
    """

    behaviour: Callable[[int, float], float] = lambda _n, _at: 0.02
    fail_every: int = 0
    workers: int = 0
    silent: bool = False
    answer: bytes = CLASSES
    bodies: list[tuple[str, bytes]] = field(default_factory=list)
    _free_at: list[float] = field(default_factory=list)

    def send(self, time: VirtualTime, timeout_s: float, path: str, body: bytes) -> transport.Exchange:
        """Answer a call."""
        number, sent = len(self.bodies), time.now()
        self.bodies.append((path, body))
        begins = sent
        if self.workers and len(self._free_at) == self.workers:
            begins = max(sent, heapq.heappop(self._free_at))
        delay = begins - sent + self.behaviour(number, begins - START)
        if self.workers:
            heapq.heappush(self._free_at, sent + delay)
        if self.silent or delay > timeout_s:
            time.sleep(timeout_s)
            return transport.Exchange(sent=sent, done=time.now(), broken=Outcome.TIMED_OUT)
        time.sleep(delay)
        failed = self.fail_every and (number + 1) % self.fail_every == 0
        items = len(found) if isinstance(found := json.loads(body)["inputs"], list) else 1
        answer = b"[" + b",".join([self.answer[1:-1]] * items) + b"]"
        return transport.Exchange(
            sent=sent, done=time.now(), status=503 if failed else 200, body=b'{"message": "full"}' if failed else answer
        )


class Hook:
    """An event of Locust, whose listeners' exceptions end the test."""

    def __init__(self) -> None:
        self._listeners: list[Callable[..., object]] = []
        self.fired: list[dict[str, Any]] = []

    def add_listener(self, listener: Callable[..., object]) -> None:
        """Add a listener."""
        self._listeners.append(listener)

    def fire(self, **facts: Any) -> None:
        """Call all listeners."""
        self.fired.append(facts)
        for listener in self._listeners:
            listener(**facts)


EVENTS = ("request", "test_start", "test_stopping", "test_stop", "quitting")


class Runner(LocalRunner):
    """Locust's runner of one process, without its statistics and its greenlets."""

    def __init__(self, time: VirtualTime, environment: Any) -> None:  # no call of the base: it starts greenlets
        self.time, self.environment = time, environment
        self.users: list[Spawned] = []
        self.target = 0
        self.finished = False
        self._heard: dict[str, Callable[..., object]] = {}
        self.play: Callable[[], object] = lambda: None

    def __del__(self) -> None:
        """End nothing: the base would end the greenlets that it has started."""

    @property
    def state(self) -> str:
        """All users run at once."""
        return STATE_RUNNING

    @state.setter
    def state(self, _: str) -> None:
        """It is always the same."""

    @property
    def user_count(self) -> int:
        """The users that run."""
        return len(self.users)

    @property
    def target_user_count(self) -> int:
        """The users that were asked for."""
        return self.target

    def start(self, user_count: int, spawn_rate: float, wait: bool = False, user_classes: Any = None) -> None:  # noqa: ARG002, FBT001, FBT002 - Locust's signature
        """Start users up to a number."""
        self.target = user_count
        while len(self.users) < user_count:
            self.users.append(self.time.spawn(self.play))

    def register_message(self, msg_type: str, listener: Any, concurrent: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - Locust's signature
        """Keep a listener of a message."""
        self._heard[msg_type] = listener

    def send_message(self, msg_type: str, data: Any = None, client_id: str | None = None) -> None:  # noqa: ARG002 - Locust's signature
        """Deliver a message to this process."""
        self._heard[msg_type](msg=SimpleNamespace(data=data))

    def stop(self) -> None:
        """End the test as Locust does: wait for the calls under way, end the users, write the result."""
        self.environment.events.test_stopping.fire()
        for user in self.users:
            user.kill()
        self.users.clear()
        self.environment.events.test_stop.fire()

    def quit(self) -> None:
        """End the test and the process."""
        if not self.finished:
            self.stop()
            self.environment.events.quitting.fire()
            self.finished = True


@dataclass(frozen=True)
class Done:
    """A finished load test: its exit code, its result if it wrote one, its log, and Locust's events of calls."""

    code: int | None
    run: Run | None
    log: list[str]
    events: list[dict[str, Any]]

    @property
    def result(self) -> Run:
        """The result, which must be there."""
        assert self.run is not None, self.log
        return self.run

    @property
    def marks(self) -> list[str]:
        """The codes of the run's marks, without the one on the unknown lengths of texts."""
        return [mark.code for mark in self.result.record.marks if mark.code != "lengths-unknown"]

    def line(self, step: int = 0) -> Line:
        """The numbers of a step over all models."""
        return summarise(self.result).steps[step].total


def load(monkeypatch: pytest.MonkeyPatch, folder: Path, target: Target, *arguments: str, **changes: Any) -> Done:
    """Run `locust -f load_tests/encoders.py --headless` with these arguments.

    Args:
        monkeypatch: restores what runs in virtual time.
        folder: the result's folder.
        target: the container that answers.
        arguments: the options of Locust and of the load test.
        changes: `ends_after`, the seconds after which Locust ends the run (-t); `cpu`, the generator's share of a
            core; `late_s`, the delay of its timers.
    """
    time = VirtualTime()
    _in_virtual_time(monkeypatch, time, cpu=changes.get("cpu", 0.2), late_s=changes.get("late_s", 0.0))
    parser = get_parser()
    add_options(parser)
    base = ("--headless", "--host", "http://127.0.0.1:9", "--task", "text-classification", "--warmup", "0")
    models = () if "--models" in arguments else ("--models", "stub")
    options = parser.parse_args([*base, *models, "--out", str(folder), *arguments])
    events = SimpleNamespace(**{name: Hook() for name in EVENTS})
    environment: Any = SimpleNamespace(parsed_options=options, events=events, process_exit_code=None)
    environment.runner = runner = Runner(time, environment)
    monkeypatch.setattr(
        transport.Transport,
        "send",
        lambda _, destination, body: target.send(time, options.timeout, destination.path, body),
    )
    heard = _Log()
    logger = logging.getLogger("load_tests")
    logger.addHandler(heard)
    try:
        led = lifecycle.Lifecycle(environment)
        runner.play = lambda: led.session.play(led.session.enter())
        time.spawn(_begin, time, runner, events, options.num_users, changes.get("ends_after"))
        time.run(lambda: runner.finished, most_s=10_000)
    finally:
        logger.removeHandler(heard)
    written = load_run(folder) if (folder / "run.json").is_file() else None
    return Done(environment.process_exit_code, written, heard.lines, events.request.fired)


def _begin(time: VirtualTime, runner: Runner, events: Any, users: int, ends_after: float | None) -> None:
    events.test_start.fire()
    runner.start(users, 100)
    if ends_after is not None:
        time.sleep(ends_after)
        time.spawn(runner.quit)


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _in_virtual_time(monkeypatch: pytest.MonkeyPatch, time: VirtualTime, *, cpu: float, late_s: float) -> None:
    class Event:
        def __init__(self) -> None:
            self._set, self._waiters = False, []  # type: ignore[var-annotated]

        def set(self) -> None:
            self._set = True
            time.wake(self._waiters)

        def wait(self, timeout: float | None = None) -> bool:
            if not self._set:
                time.wait(self._waiters, timeout)
            return self._set

    virtual = SimpleNamespace(sleep=time.sleep, spawn=time.spawn)
    for module in (conductor, lifecycle, phases, session, stage):
        monkeypatch.setattr(module, "gevent", virtual)
    for module in (conductor, lifecycle, phases, session, stage, transport, validity):
        monkeypatch.setattr(module, "now", time.now)
    monkeypatch.setattr(stage, "Event", Event)
    monkeypatch.setattr(validity, "gevent", SimpleNamespace(sleep=lambda seconds: time.sleep(seconds + late_s)))
    clock = SimpleNamespace(perf_counter=time.now, process_time=lambda: cpu * (time.now() - START))
    monkeypatch.setattr(validity, "time", clock)
    monkeypatch.setattr(lifecycle.gc, "freeze", lambda: None)
