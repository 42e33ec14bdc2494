"""The moment that a build is of, so that the same build can be made again on another day.

Waiting for what is not there yet, together: one caller asks again, and the others wait for what it hears.
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
    """The moment in UTC: that of SOURCE_DATE_EPOCH where it is set, else the machine's."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return dt.datetime.fromtimestamp(int(epoch), dt.UTC) if epoch.isdecimal() else dt.datetime.now(dt.UTC)


Answer = TypeVar("Answer")

_SLICE_S = 1.0
"""How long one who waits for another's answer sleeps before looking at the clock again."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Time and chance; tests give their own. `jitter` is a number of at least 0 and below 1."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Pauses in seconds that double from the first to the longest; each is shortened by chance, to a half at most."""

    first_s: float
    longest_s: float


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """How long a caller has waited, and how long it will at most, in seconds."""

    waited_s: float
    limit_s: float


def minutes_and_seconds(seconds: float) -> str:
    """A length of time as people read it: 9:24."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


class LimitPassedError(Exception):
    """A caller's limit, in seconds, has passed; `last` is the latest refusal, its own or that of the one who asked."""

    def __init__(self, last: Exception, limit_s: float) -> None:
        self.last = last
        self.limit_s = limit_s
        super().__init__(str(last))


class _Caller:
    """One who wants a call made: since when, for how long, and who is told."""

    def __init__(self, clock: Clock, limit_s: float, notice: Callable[[Waiting], None]) -> None:
        self.limit_s = limit_s
        self._clock, self._notice = clock, notice
        self._started = clock.now()

    def left_s(self) -> float:
        """Seconds until its limit."""
        return self.limit_s - (self._clock.now() - self._started)

    def tell(self) -> None:
        """Say how long it has been."""
        self._notice(Waiting(waited_s=self._clock.now() - self._started, limit_s=self.limit_s))


class Gate:
    """Lets calls through until one is refused; then one caller asks again with pauses, until it is answered.

    Safe for threads. A refusal is an exception of the given type; any other passes through to its caller, unrepeated.
    Whoever stops asking, for whatever reason, hands the turn to one who waits.

    `look` is asked before each repeated call whether it makes sense by now; it may raise, which ends the asking.
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
        """Make a call, and make it again while it is refused.

        Args:
            send: makes the call once.
            limit_s: for how many seconds to wait at most.
            notice: told now and then, and before each pause, how long it has been.

        Raises:
            LimitPassedError: it was refused, or others were, until the limit.
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
        """Let everybody through: a call was answered."""
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
        """Return when the caller may send: the gate is open, or it is the one who asks and its pause is over."""
        while self._takes_turn(caller):
            caller.tell()
            self._clock.sleep(max(0.0, min(self._next_pause(), caller.left_s())))
            if self._look():
                return

    def _takes_turn(self, caller: _Caller) -> bool:
        """Wait until nobody else asks; False when the gate is open."""
        with self._changed:
            while self._last is not None:
                if (left_s := caller.left_s()) <= 0:
                    raise LimitPassedError(self._last, caller.limit_s)
                if self._asking is None or self._asking is caller:
                    self._asking = caller
                    return True
                caller.tell()
                self._changed.wait(min(left_s, _SLICE_S))
            return False

    def _next_pause(self) -> float:
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, self._backoff.longest_s)
        return pause_s * (1 - self._clock.jitter() / 2)
