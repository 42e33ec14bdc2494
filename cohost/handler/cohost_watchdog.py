"""The watchdog: ends an engine process that can no longer serve (hanging pass, blocked event loop, lost GPU).

Without the watchdog, a process in such a state would stay unnoticed: DJL Serving 0.36.0 has no time limit for a call of
an asynchronous model. DJL Serving closes the caller's connection after 120 s without an answer, but still counts the
model as healthy (recorded: `djl_lifecycle`, 27). The proxy processes notice the end of an engine process at once, and
start another one.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


logger = logging.getLogger(__name__)

LOST_DEVICE_CODE: Final = 3
"""The exit code, shown in the container's log, after the GPU or a thread that runs models failed."""
LONG_PASS_CODE: Final = 4
"""The exit code after a pass exceeded its time limit."""
BLOCKED_LOOP_CODE: Final = 5
"""The exit code after the event loop was blocked, so that no answer could leave."""

_FLUSH_S: Final = 0.5
_GRACE_S: Final = 5.0
_LONGEST_TICK_S: Final = 1.0
_TICKS_A_LIMIT: Final = 20
# Added to the watchdog's own limit, for the interpreter's timer: the watchdog itself cannot run while native code
# holds Python's lock.
_LAST_RESORT_S: Final = 60.0
_RENEW_LAST_RESORT_S: Final = 10.0


class Ending:
    """End the process after its callers have been answered; the first call of `begin` sets the exit code.

    `waiting` returns the number of unanswered calls. The process ends `flush_s` seconds after the last answer. If the
    event loop is blocked, there may be no last answer, so after `grace_s` seconds the process ends with calls
    unanswered.
    """

    def __init__(
        self,
        waiting: Callable[[], int],
        end_process: Callable[[int], None] = os._exit,
        *,
        flush_s: float = _FLUSH_S,
        grace_s: float = _GRACE_S,
    ) -> None:
        self._waiting = waiting
        self._end_process = end_process
        self._flush_s = flush_s
        self._grace_s = grace_s
        self._begun = threading.Lock()

    def begin(self, code: int) -> None:
        """Begin to end the process with an exit code, and return at once; safe in any thread."""
        if self._begun.acquire(blocking=False):
            threading.Thread(target=self._run, args=(code,), name="cohost-ending", daemon=True).start()

    def _run(self, code: int) -> None:
        limit = time.monotonic() + self._grace_s
        while self._waiting() and time.monotonic() < limit:
            time.sleep(self._flush_s / 10)
        time.sleep(self._flush_s)
        logger.critical("the process ends with code %d, %d calls unanswered", code, self._waiting())
        self._end_process(code)


@dataclass(eq=False, slots=True)
class Watched:
    """The time limit of one running pass and the time that the device has worked on it, both in seconds."""

    limit_s: float
    seconds: float = 0.0


class Watchable(Protocol):
    """The attributes of a process that the watchdog reads: its running passes."""

    @property
    def watched(self) -> list[Watched]:
        """Return the passes that the device computes now."""


class Watchdog:
    """A thread that watches an engine's passes and its event loop.

    The watchdog's thread counts its own loop iterations instead of reading a clock; each iteration waits for at least a
    fixed time. So a process that was stopped, or got no CPU time, does not count as hanging.
    """

    def __init__(
        self,
        passes: Watchable,
        loop: asyncio.AbstractEventLoop,
        end: Callable[[int], None],
        limit_s: float,
        each_turn: Callable[[], None] = lambda: None,
        *,
        last_resort: bool = False,
    ) -> None:
        """Start to watch an engine process.

        Args:
            passes: the running passes; each has its own time limit.
            loop: the event loop that sends the answers.
            end: ends the process with an exit code.
            limit_s: the seconds that the event loop may be blocked.
            each_turn: called in each loop iteration of the watchdog's thread.
            last_resort: let the interpreter end the process if the watchdog's thread cannot run for a further minute,
                because native code may hold Python's lock. A process can have one such timer, and it uses the wall
                clock only.
        """
        self._passes = passes
        self._loop = loop
        self._end = end
        self._limit_s = limit_s
        self._each_turn = each_turn
        self._last_resort = last_resort
        self._tick_s = min(_LONGEST_TICK_S, limit_s / _TICKS_A_LIMIT)
        self._silent_s = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cohost-watchdog", daemon=True)
        self._thread.start()

    def tighten(self, limit_s: float) -> None:
        """Check more often if passes with a time limit of `limit_s` seconds require it."""
        self._tick_s = min(self._tick_s, limit_s / _TICKS_A_LIMIT)

    def stop(self) -> None:
        """End the watchdog's thread."""
        self._stopped.set()
        self._thread.join()
        if self._last_resort:
            faulthandler.cancel_dump_traceback_later()

    def _run(self) -> None:
        renewed = 0.0
        while not self._stopped.wait(tick_s := self._tick_s):
            if self._last_resort and time.monotonic() - renewed > _RENEW_LAST_RESORT_S:
                renewed = time.monotonic()
                faulthandler.dump_traceback_later(self._limit_s + _LAST_RESORT_S, exit=True)
            self._each_turn()
            if self._is_loop_blocked(tick_s) or self._is_pass_too_long(tick_s):
                return

    def _is_pass_too_long(self, tick_s: float) -> bool:
        watched = self._passes.watched
        for one in watched:
            one.seconds += tick_s
        late = [one.limit_s for one in watched if one.seconds > one.limit_s]
        if not late:
            return False
        logger.critical("a pass ran over %g s; the process ends", late[0])
        # The log then shows the place where the pass hangs.
        faulthandler.dump_traceback()
        self._end(LONG_PASS_CODE)
        return True

    def _is_loop_blocked(self, tick_s: float) -> bool:
        self._silent_s += tick_s
        try:
            self._loop.call_soon_threadsafe(self._hear)
        except RuntimeError:
            return True  # the event loop is closed, because the process is ending
        if self._silent_s < self._limit_s:
            return False
        logger.critical("the event loop was blocked for %g s, so no answer can leave; the process ends", self._limit_s)
        faulthandler.dump_traceback()
        self._end(BLOCKED_LOOP_CODE)
        return True

    def _hear(self) -> None:
        self._silent_s = 0.0
