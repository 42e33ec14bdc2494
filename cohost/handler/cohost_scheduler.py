"""The passes of an engine process: which model's batch runs next, and in which thread.

All models of a process share its device. The next pass is that of the model whose requests wait longest, unless the
model has had 0.2 s more of the device than its share (start-time fair queueing, by predicted seconds). A request of a
thousand sequences waits anew after each pass, so the request delays another model's text by one pass at most.

On a GPU one thread launches passes, on one stream, while a second thread reads the results of the last one. On a CPU
a pass has ended when its launch returns; two models with work run side by side with half of the threads each, which is
faster than one after the other with all threads (measured with six models: 1.1 times the texts per second). A pass that
has all threads ends before another begins.
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
    """A pass of a model, as the scheduler handles it."""

    started: float
    watched: Watched | None
    seconds: float

    @property
    def marks(self) -> list[str]:
        """Return the marks of the requests in this pass."""


class Model(Protocol):
    """The part of `Engine` that the scheduler uses; it holds the scheduler's lock for all but launch and read."""

    share: float

    def level(self, now: float) -> Level | None:
        """Return the first level at which the model has work; None without work."""

    def waiting_since(self, level: Level) -> float:
        """Return the arrival of the oldest request of a level (queue clock, seconds)."""

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
    """A model's account: the virtual time, in seconds of a model with share 1, at which its next pass begins."""

    model: Model
    next: float = 0.0
    running: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lanes:
    """The threads of a device: `count` of them launch passes, and `depth` passes may run at once.

    A model may have `lead_s` seconds more of the device than its share before others go first.
    `prepare` is called in each thread at its start, and `use_threads` before each pass with the number of the CPU's
    threads for it, at most `threads`.
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

    `changed` is the lock of all queues, and is notified when one of them changes. `journal` is called with the marks of
    the requests in the running passes, whenever these change.
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
        """Return the passes that the device works on now; a GPU works on the oldest of the launched passes only."""
        with self.changed:
            passes = [running.one.watched for running in self._running[: self._lanes.count]]
            return [watched for watched in (*passes, self._measured) if watched is not None]

    def add(self, model: Model) -> None:
        """Include a model; its first pass may begin at once."""
        with self.changed:
            self._turns[model] = _Turn(model, self._virtual)

    def remove(self, model: Model) -> None:
        """Leave a model out, and wait for its running passes."""
        with self.changed:
            turn = self._turns.pop(model, None)
            while turn is not None and turn.running and not self._ended:
                self.changed.wait(1.0)

    def close(self) -> None:
        """End the threads after the running passes."""
        with self.changed:
            self._ended = True
            self.changed.notify_all()
        for thread in self._threads:
            thread.join()

    @contextlib.contextmanager
    def alone(self, watched: Watched) -> Iterator[None]:
        """Keep all passes away while the caller uses the device, for a measurement or a trial with a time limit.

        Between two callers that use the device alone, every waiting model gets at least one pass.
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
        """Launch passes until the scheduler is closed; on a GPU the reader thread reads results, else this thread."""
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
        """Return the threads of a pass: all of them, unless another model runs or has work."""
        others = len(self._running) > 1 or any(
            turn is not running.turn and turn.model.level(running.one.started) is not None
            for turn in self._turns.values()
        )
        return max(1, self._lanes.threads // self._lanes.count) if others else self._lanes.threads

    def _take(self, now: float) -> _Running | None:
        """Return the pass to launch next, with its place among the running ones; None if none can be launched."""
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
        """Return True if a pass beside the running one would compete with it for its threads, which slows down both."""
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
