"""Choose the next model whose batch an engine process runs, and the thread that runs it.

All models of a process share its device. The model whose requests wait longest runs the next pass, unless that model
has used the device for 0.2 s more than its share (start-time fair queueing, by predicted seconds). After each pass of a
request with a thousand sequences, its waiting time starts again at 0, so the request delays another model's text by at
most one pass.

On a GPU, one thread launches passes on one stream, while a second thread reads the results of the previous pass. On a
CPU, a pass has ended when its launch returns. Two models with work run at the same time, with half of the threads each:
that is faster than running them one after the other with all threads (measured with six models: 1.1 times the texts per
second). While a pass that uses all threads runs, no other pass begins.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from .cohost_frames import Level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .cohost_watchdog import Watched

logger = logging.getLogger(__name__)

# Within this lead the order is that of arrival. Measured with six models and 16 clients on two cores: 0.6 times the p99
# of exact shares, and 1.1 times the texts per second.
_LEAD_S = 0.2
_NO_WORK = "the thread that runs the models failed"


class Passed(Protocol):
    """The attributes of a model's pass that the scheduler uses."""

    started: float
    watched: Watched | None
    seconds: float

    @property
    def marks(self) -> list[str]:
        """Return the marks (names in the journal) of the requests in this pass."""


class Model(Protocol):
    """The part of `Engine` that the scheduler calls; the scheduler holds its lock, except in `launch` and `read`."""

    share: float

    def level(self, now: float) -> Level | None:
        """Return the most urgent level (see `Level`) at which the model has work; None if the model has no work."""

    def waiting_since(self, level: Level) -> float:
        """Return the earliest `turn` (see `Ticket`) of a level's requests; 0 for halves of a failed pass."""

    def take(self, level: Level) -> Passed | None:
        """Remove and return the next pass of a level; None if all its requests have expired."""

    def predicted_s(self, one: Any) -> float:  # a pass that `take` returned
        """Return the seconds that a pass is expected to take."""

    def launch(self, one: Any) -> bool:  # as above
        """Launch a pass, and return False if that failed; never raises."""

    def read(self, one: Any) -> None:  # as above
        """Wait for a launched pass and deliver its results; never raises."""

    def fail_all(self, reason: str) -> None:
        """Refuse all requests, because no thread runs passes any more."""


@dataclass(eq=False, slots=True)
class _Turn:
    """A model's account in fair queueing: the virtual time at which its next pass begins, in seconds at share 1."""

    model: Model
    next: float = 0.0
    running: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lanes:
    """The threads of a device: `count` threads launch passes, and `depth` passes may run at the same time.

    A model may use the device for `lead_s` seconds more than its share before other models go first. Each thread calls
    `prepare` at its start. Before each pass, the thread calls `use_threads` with the number of CPU threads for the
    pass, at most `threads`.
    """

    count: int = 1
    depth: int = 1
    threads: int = 1
    lead_s: float = _LEAD_S
    prepare: Callable[[], None] = lambda: None
    use_threads: Callable[[int], None] = lambda _: None


@dataclass(eq=False, slots=True)
class _Running:
    turn: _Turn
    one: Passed
    level: Level
    predicted_s: float
    threads: int = 1


class Scheduler:
    """The threads that run the passes of all models of a process.

    `changed` is a condition variable: its lock protects all models' queues, and it is notified when a queue changes.
    `journal` is called with the marks (names) of the requests in the running passes, whenever these requests change.
    """

    def __init__(self, lanes: Lanes, journal: Callable[[Sequence[str]], None] = lambda _: None) -> None:
        self.changed = threading.Condition()
        self._lanes = lanes
        self._journal = journal
        self._turns: dict[Model, _Turn] = {}
        self._virtual = 0.0
        self._running: list[_Running] = []
        self._reserved = False
        self._measured: Watched | None = None
        self._reservations = 0
        self._after_reservation = False
        self._ended = False
        self._launched: SimpleQueue[_Running | None] = SimpleQueue()
        targets = [self._launch_all] * lanes.count + ([self._read_all] if lanes.depth > lanes.count else [])
        self._threads = [
            threading.Thread(target=self._guarded, args=(target,), name=f"cohost-lane-{number}", daemon=True)
            for number, target in enumerate(targets)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def watched(self) -> list[Watched]:
        """Return the passes that the device computes now; a GPU computes only the oldest of the launched passes."""
        with self.changed:
            passes = [running.one.watched for running in self._running[: self._lanes.count]]
            return [watched for watched in (*passes, self._measured) if watched is not None]

    def add(self, model: Model) -> None:
        """Add a model to the scheduler; its first pass may begin at once."""
        with self.changed:
            self._turns[model] = _Turn(model, self._virtual)

    def remove(self, model: Model) -> None:
        """Remove a model from the scheduler, and wait until its running passes have ended."""
        with self.changed:
            turn = self._turns.pop(model, None)
            while turn is not None and turn.running and not self._ended:
                self.changed.wait(1.0)

    def close(self) -> None:
        """End the threads when their running passes have ended."""
        with self.changed:
            self._ended = True
            self.changed.notify_all()
        for thread in self._threads:
            thread.join()

    @contextlib.contextmanager
    def alone(self, watched: Watched) -> Iterator[None]:
        """Run no pass inside the `with` block, so that the caller has the device alone, for a limited time.

        Between two such blocks, at least one pass runs if any model has work.
        """
        with self.changed:
            self._reservations += 1
            while not self._ended and (self._running or self._reserved or self._owes_a_pass()):
                self.changed.wait()
            self._reservations -= 1
            self._reserved, self._measured = True, watched
        try:
            yield
        finally:
            with self.changed:
                self._reserved, self._measured = False, None
                self._after_reservation = True
                self.changed.notify_all()

    def _owes_a_pass(self) -> bool:
        return self._after_reservation and self._level(time.monotonic()) is not None

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            # Without the thread that has failed, every caller would wait for ever.
            logger.exception("a thread that runs the models has failed")
            with self.changed:
                self._ended = True
                self.changed.notify_all()
            for model in list(self._turns):
                model.fail_all(_NO_WORK)

    def _launch_all(self) -> None:
        """Launch passes until the scheduler is closed; on a CPU also read the results (for a GPU: `_read_all`)."""
        self._lanes.prepare()
        try:
            while (running := self._next()) is not None:
                model, one = running.turn.model, running.one
                if not model.launch(one):
                    self._finish(running)
                elif self._lanes.depth > self._lanes.count:
                    self._launched.put(running)
                else:
                    model.read(one)
                    self._finish(running)
        finally:
            self._launched.put(None)

    def _read_all(self) -> None:
        while (running := self._launched.get()) is not None:
            running.turn.model.read(running.one)
            self._finish(running)

    def _next(self) -> _Running | None:
        """Wait until a pass can be launched, and return that pass; return None once the scheduler is closed."""
        with self.changed:
            while not self._ended:
                running = self._take(time.monotonic())
                if running is not None:
                    self._running.append(running)
                    self._journal([mark for each in self._running for mark in each.one.marks])
                    running.threads = self._threads_for(running)
                    break
                self.changed.wait()
            else:
                return None
        self._lanes.use_threads(running.threads)
        return running

    def _threads_for(self, running: _Running) -> int:
        """Return the number of threads for a pass: all, unless another model runs or has work."""
        others = len(self._running) > 1 or any(
            turn is not running.turn and turn.model.level(running.one.started) is not None
            for turn in self._turns.values()
        )
        return max(1, self._lanes.threads // self._lanes.count) if others else self._lanes.threads

    def _take(self, now: float) -> _Running | None:
        """Return the pass to launch next, with its model, level and predicted time; None if no pass can start now."""
        if self._reserved or (self._reservations and not self._owes_a_pass()):
            return None
        while (level := self._level(now)) is not None and len(self._running) < self._lanes.depth:
            if self._running and (Level.ALONE in (level, self._running[0].level) or self._has_all_threads()):
                return None
            turn = self._first(level, now)
            if turn is None:
                return None
            one = turn.model.take(level)
            if one is not None:
                return self._begun(turn, one, level)
        return None

    def _has_all_threads(self) -> bool:
        """Return True if the running pass uses all threads, so that a second pass would slow down both."""
        return self._running[0].threads > max(1, self._lanes.threads // self._lanes.count)

    def _begun(self, turn: _Turn, one: Passed, level: Level) -> _Running:
        self._after_reservation = False
        predicted_s = turn.model.predicted_s(one)
        self._virtual = max(self._virtual, turn.next)
        turn.next = self._virtual + predicted_s / turn.model.share
        turn.running += 1
        return _Running(turn, one, level, predicted_s)

    def _level(self, now: float) -> Level | None:
        levels = [level for model in self._turns if (level := model.level(now)) is not None]
        return min(levels, default=None)

    def _first(self, level: Level, now: float) -> _Turn | None:
        # A model's own passes run one after another on a CPU, where each of them could use all threads.
        most = 1 if self._lanes.depth == self._lanes.count else self._lanes.depth
        ready = [turn for turn in self._turns.values() if turn.model.level(now) == level and turn.running < most]
        return min(
            ready,
            key=lambda turn: (max(turn.next - self._lanes.lead_s, self._virtual), turn.model.waiting_since(level)),
            default=None,
        )

    def _finish(self, running: _Running) -> None:
        with self.changed:
            self._running.remove(running)
            running.turn.running -= 1
            # The account is corrected by the time that the pass really took.
            running.turn.next += (running.one.seconds - running.predicted_s) / running.turn.model.share
            self._journal([mark for each in self._running for mark in each.one.marks])
            self.changed.notify_all()
