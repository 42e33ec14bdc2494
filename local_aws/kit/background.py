"""Background tasks that outlive the request that started them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine


_logger = logging.getLogger(__name__)


class BackgroundTasks:
    """Run coroutines in the background, and cancel them all at the end."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[None, None, None]) -> None:
        """Run a coroutine; an exception that it does not handle goes to the log."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def give_up(self) -> None:
        """Cancel all running tasks and wait until they have cleaned up after themselves."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _logger.error("a background task ended with a fault of the emulation", exc_info=fault)
