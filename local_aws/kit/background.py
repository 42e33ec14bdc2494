"""Work outside of requests: tasks that run on after their request has ended, and loops that do work when it is due."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from local_aws.kit.clock import Clock


_logger = logging.getLogger(__name__)


class BackgroundTasks:
    """A set of coroutines that run in the background; `give_up` cancels all of them."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[None, None, None]) -> None:
        """Start a coroutine in the background; log an exception that the coroutine raises."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def give_up(self) -> None:
        """Cancel all running coroutines and wait until each has ended."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _logger.error("a background task ended with a fault of the emulation", exc_info=fault)


_SHORTEST_WAIT_S: Final = 0.02
_PAUSE_AFTER_FAULT_S: Final = 1.0


class DueLoop:
    """A loop that calls a function whenever its work is due by the emulator's clock, and after each call of `wake`.

    If the function raises an exception, the loop logs it and continues after a pause.

    Args:
        name: the service's name, for the log.
        clock: the emulation's clock; the loop recalculates its wait when the clock's speed changes.
        next_due: returns the clock's time, in seconds, at which work is due next; None for not before `wake`.
        work: the function; it does the work that is due, if any.
        pause_s: the pause after an exception, in seconds of real time.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        next_due: Callable[[], float | None],
        work: Callable[[], Awaitable[None]],
        pause_s: float = _PAUSE_AFTER_FAULT_S,
    ) -> None:
        self._pause_s = pause_s
        self._name = name
        self._clock = clock
        self._next_due = next_due
        self._work = work
        self._woken = asyncio.Event()
        self._tasks = BackgroundTasks()
        clock.on_change(self.wake)

    def wake(self) -> None:
        """Make the loop call its function soon, because a state on which the due time depends has changed."""
        self._woken.set()

    def start(self) -> None:
        """Start the loop. Call this method once, in the event loop that has to run the work."""
        self._tasks.begin(self._run())

    async def stop(self) -> None:
        """End the loop and wait until it has ended."""
        await self._tasks.give_up()

    async def _run(self) -> None:
        while True:
            await self._wait()
            try:
                await self._work()
            except BotoCoreError as fault:
                # This is usual at shutdown, because the front door closes before this loop ends.
                _logger.info("%s could not reach a service: %s", self._name, fault)
                await asyncio.sleep(self._pause_s)
            except Exception:
                _logger.exception("%s met a fault of the emulation", self._name)
                await asyncio.sleep(self._pause_s)

    async def _wait(self) -> None:
        """Wait until the work is due, or until `wake` is called."""
        due = self._next_due()
        wait_s = None if due is None else max(self._clock.real(due - self._clock.now()), _SHORTEST_WAIT_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), wait_s)
        self._woken.clear()
