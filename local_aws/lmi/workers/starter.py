"""The start of a model's worker process: fork it, send the load order, wait for its handler, make the first call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from local_aws.lmi.errors import EngineFailure, EngineOutOfMemory, WorkerFailure
from local_aws.lmi.workers.connection import WorkerConnection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from local_aws.lmi.settings import ModelSettings
    from local_aws.lmi.workers.connection import Frame
    from local_aws.lmi.workers.fork_server import ForkServer


_FIRST_ERROR = 300
_OUT_OF_MEMORY = 507
_STARTUP_S = 120
_NOT_STARTED = "Python process startup time out."


class WorkerStarter:
    """The starter of worker processes for the model in `model_dir`."""

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

    def sock_name(self) -> str:
        """Return the socket name of a new worker; all processes of this worker have it in sys.argv as --sock-name."""
        return self._fork_server.sock_name()

    async def launch(self, sock_name: str, on_lost: Callable[[], None]) -> tuple[int, WorkerConnection]:
        """Start a worker process and wait until it has imported its handler; return its pid and the connection to it.

        WorkerConnection describes `on_lost`.

        Raises:
            EngineFailure: the handler cannot be imported, or not within two minutes.
        """
        pid, endpoint, exited = await self._fork_server.fork(str(self._order["model_dir"]))
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_unix_connection(lambda: WorkerConnection(on_lost), sock=endpoint)
        try:
            await self._wait_for_start(connection, sock_name, exited)
        except BaseException:
            connection.close()
            self._fork_server.kill(pid)
            raise
        return pid, connection

    async def _wait_for_start(self, connection: WorkerConnection, sock_name: str, exited: asyncio.Future[int]) -> None:
        try:
            async with asyncio.timeout(_STARTUP_S):
                connection.send_order(self._order | {"sock_name": sock_name})
                started = await connection.started
        except TimeoutError:
            raise EngineFailure(_NOT_STARTED) from None
        except WorkerFailure as failure:
            raise EngineFailure(f"Failed to initialize model: {failure.message}") from failure
        if not started:
            raise EngineFailure(f"Python stream closed unexpectedly, exit code: {await asyncio.shield(exited)}")

    async def load(self, pid: int, connection: WorkerConnection) -> None:
        """Make the first call to a process's handler, which loads the model.

        Raises:
            EngineFailure: the call fails, the process ends, or `option.model_loading_timeout` seconds have passed.
            EngineOutOfMemory: the handler ran out of memory.
        """
        try:
            async with asyncio.timeout(self._settings.loading_timeout_s):
                _check(await connection.ask(dict(self._settings.properties), ()))
        except TimeoutError:
            # The real server's answer has no message in this case either.
            raise EngineFailure from None
        except WorkerFailure as failure:
            raise EngineFailure(f"Failed to initialize model: {failure.message}") from failure
        self._fork_server.loaded.add(pid)

    def kill(self, pid: int) -> None:
        """Kill a worker process, even in the middle of a call."""
        self._fork_server.kill(pid)


def _check(frame: Frame) -> None:
    code = frame.head["code"]
    if code == _OUT_OF_MEMORY:
        raise EngineOutOfMemory
    if code >= _FIRST_ERROR:
        raise EngineFailure(f"Failed to initialize model: {frame.head['message']}")
