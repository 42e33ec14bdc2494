"""Background tasks that outlive the request that started them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine


_logger = logging.getLogger(__name__)


class Changes:
    """Runs changes in the background and can give them all up."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, change: Coroutine[None, None, None]) -> None:
        """Run a change; a fault of the emulation in it goes to the log."""
        task = asyncio.create_task(change)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def give_up(self) -> None:
        """Cancel what is under way and wait until it has cleaned up after itself."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _logger.error("a change ended with a fault of the emulation", exc_info=fault)
