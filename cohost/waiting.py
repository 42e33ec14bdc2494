"""Return the current time for builds, and let concurrent callers share one poller.

The environment variable SOURCE_DATE_EPOCH replaces the current time, so that a build on another day has the same
result. With the class `Gate`, one of several callers repeats its refused call with growing pauses, while the other
callers wait for the result of that call.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


def now() -> dt.datetime:
    """Return the current time in UTC: the environment variable SOURCE_DATE_EPOCH, else the machine's clock."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return dt.datetime.fromtimestamp(int(epoch), dt.UTC) if epoch.isdecimal() else dt.datetime.now(dt.UTC)


Answer = TypeVar("Answer")

_SLICE_S = 1.0
"""The longest wait in seconds for another caller's outcome before a waiting caller checks the clock again."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The sources of time and randomness, replaceable in tests.

    `now` and `sleep` count seconds; `jitter` returns a number of at least 0 and below 1.
    """

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Pauses in seconds that double from `first_s` to `longest_s`; each pause is shortened at random by up to half."""

    first_s: float
    longest_s: float


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The progress of a waiting caller: the seconds waited so far, and its limit in seconds."""

    waited_s: float
    limit_s: float


def minutes_and_seconds(seconds: float) -> str:
    """Return a duration in seconds as text in minutes and seconds, such as 9:24."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


class LimitPassedError(Exception):
    """A caller's time limit has passed; `last` is the latest refusal of its own or of the polling caller's call."""

    def __init__(self, last: Exception, limit_s: float) -> None:
        self.last = last
        self.limit_s = limit_s
        super().__init__(str(last))


class _Caller:
    """One caller of `Gate.run`: its start time, its time limit and its progress callback."""

    def __init__(self, clock: Clock, limit_s: float, notice: Callable[[Waiting], None]) -> None:
        self.limit_s = limit_s
        self._clock, self._notice = clock, notice
        self._started = clock.now()

    def left_s(self) -> float:
        """Return the seconds until the caller's time limit; they are negative after the limit."""
        return self.limit_s - (self._clock.now() - self._started)

    def report(self) -> None:
        """Call the progress callback with the time waited so far."""
        self._notice(Waiting(waited_s=self._clock.now() - self._started, limit_s=self.limit_s))


class Gate:
    """A gate for concurrent calls: after a refused call, one caller polls, and the other callers wait for its outcome.

    The gate is thread-safe. A refusal is an exception of type `refusal`; any other exception is raised to the caller
    whose call raised it, without a retry. If the polling caller stops for any reason, one of the waiting callers
    continues the polling.

    The function `look` is called before each repeated call and returns True if a retry makes sense now; an exception
    from `look` is raised to the polling caller.
    """

    def __init__(
        self,
        refusal: type[Exception],
        *,
        backoff: Backoff,
        clock: Clock,
        look: Callable[[], bool] = lambda: True,
    ) -> None:
        self._refusal = refusal
        self._backoff = backoff
        self._clock = clock
        self._look = look
        self._changed = threading.Condition()
        self._last: Exception | None = None
        self._asking: _Caller | None = None
        self._pause_s = backoff.first_s

    def run(self, send: Callable[[], Answer], *, limit_s: float, notice: Callable[[Waiting], None]) -> Answer:
        """Make a call, and repeat the call while it is refused.

        Args:
            send: makes the call once.
            limit_s: the longest time to wait, in seconds.
            notice: called with the progress, before each pause while polling and about every second while waiting.

        Raises:
            LimitPassedError: this call, or the call of the polling caller, was refused until `limit_s` had passed.
        """
        caller = _Caller(self._clock, limit_s, notice)
        try:
            while True:
                self._wait(caller)
                try:
                    answer = send()
                except self._refusal as error:
                    self._shut(error)
                else:
                    self.open()
                    return answer
        finally:
            self._leave(caller)

    def open(self) -> None:
        """Let all waiting callers make their calls, after a call has succeeded."""
        if self._last is None:
            return
        with self._changed:
            self._last = None
            self._pause_s = self._backoff.first_s
            self._changed.notify_all()

    def _shut(self, error: Exception) -> None:
        with self._changed:
            self._last = error

    def _leave(self, caller: _Caller) -> None:
        with self._changed:
            if self._asking is caller:
                self._asking = None
                self._changed.notify_all()

    def _wait(self, caller: _Caller) -> None:
        """Return when the caller may call: no refusal is outstanding, or the caller polls and its pause is over."""
        while self._takes_turn(caller):
            caller.report()
            self._clock.sleep(max(0.0, min(self._next_pause(), caller.left_s())))
            if self._look():
                return

    def _takes_turn(self, caller: _Caller) -> bool:
        """Wait; return True when the caller becomes the polling caller, False when no refusal is outstanding."""
        with self._changed:
            while self._last is not None:
                if (left_s := caller.left_s()) <= 0:
                    raise LimitPassedError(self._last, caller.limit_s)
                if self._asking is None or self._asking is caller:
                    self._asking = caller
                    return True
                caller.report()
                self._changed.wait(min(left_s, _SLICE_S))
            return False

    def _next_pause(self) -> float:
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, self._backoff.longest_s)
        return pause_s * (1 - self._clock.jitter() / 2)
