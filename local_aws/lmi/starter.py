"""Starts one model's workers: a forked process, told what to load and waited for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from local_aws.lmi.faults import EngineFailure, EngineOutOfMemory, WorkerFailure
from local_aws.lmi.worker_link import WorkerLink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from local_aws.lmi.fork_server import ForkServer
    from local_aws.lmi.frames import Frame
    from local_aws.lmi.model_settings import ModelSettings

_FIRST_ERROR = 300
_OUT_OF_MEMORY = 507


class WorkerStarter:
    """Starts workers of the model in `model_dir`."""

    def __init__(self, fork_server: ForkServer, *, name: str, model_dir: Path, settings: ModelSettings) -> None:
        self._fork_server = fork_server
        self._settings = settings
        self._order = {
            "name": name,
            "model_dir": str(model_dir),
            "entry_point": settings.entry_point,
            "function": settings.properties["handler"],
            "async_mode": settings.async_mode,
            "environment": dict(settings.environment),
        }

    async def start(self, on_lost: Callable[[], None]) -> tuple[int, WorkerLink]:
        """A worker that has loaded its model: its pid and the link to it. `on_lost` is called once when it ends.

        Raises:
            EngineFailure: the handler cannot be imported, fails on its first call, or takes longer than
                `option.model_loading_timeout`.
            EngineOutOfMemory: the handler ran out of memory.
        """
        pid, connection, exited = await self._fork_server.fork(str(self._order["model_dir"]))
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: WorkerLink(on_lost), sock=connection)
        try:
            await self._load(link, exited)
        except BaseException:
            link.close()
            self._fork_server.kill(pid)
            raise
        return pid, link

    def kill(self, pid: int) -> None:
        """Ends a worker at once, whatever it is doing."""
        self._fork_server.kill(pid)

    async def _load(self, link: WorkerLink, exited: asyncio.Future[int]) -> None:
        try:
            async with asyncio.timeout(self._settings.loading_timeout_s):
                link.send_order(self._order)
                if not await link.started:
                    raise EngineFailure(f"Python stream closed unexpectedly, exit code: {await asyncio.shield(exited)}")
                _check(await link.ask(dict(self._settings.properties), ()))
        except TimeoutError:
            # The real server's answer carries no message here either.
            raise EngineFailure from None
        except WorkerFailure as failure:
            raise EngineFailure(f"Failed to initialize model: {failure.message}") from failure


def _check(frame: Frame) -> None:
    code = frame.head["code"]
    if code == _OUT_OF_MEMORY:
        raise EngineOutOfMemory
    if code >= _FIRST_ERROR:
        raise EngineFailure(f"Failed to initialize model: {frame.head['message']}")
