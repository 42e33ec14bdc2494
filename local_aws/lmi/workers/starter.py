"""One worker process as the container sees it: calls by number over a socket, and the news of its death.

Starts one model's workers: a forked process, told what to load and waited for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from local_aws.lmi.errors import EngineFailure, EngineOutOfMemory, WorkerFailure
from local_aws.lmi.workers.connection import Frame, FrameReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from local_aws.lmi.models.serving_properties import ModelSettings
    from local_aws.lmi.workers.connection import Content
    from local_aws.lmi.workers.fork_server import ForkServer


DISCONNECTED = "java.util.concurrent.ExecutionException: java.io.IOException: Python worker disconnected."


class WorkerLink(asyncio.Protocol):
    """Sends requests to a worker and hands each answer to the call that waits for it.

    `on_lost` is called once, when a worker that had imported its handler has closed its end or died, or `close` was
    called.
    """

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost
        self._frames = FrameReader()
        self._calls: dict[int, Callable[[Frame | None], bool]] = {}
        self._next_id = 0
        self._transport: asyncio.Transport | None = None
        self.started: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()

    @property
    def connected(self) -> bool:
        """Tell whether the worker's end is open."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ready."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what asyncio hands a stream protocol
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Frames from the worker: its start, and answers."""
        for frame in self._frames.feed(data):
            if "started" in frame.head:
                self.started.set_result(True)
            else:
                self._answer(frame)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - any end is a lost worker
        """The worker is gone: every call that waits fails at once."""
        had_started = self.started.done()
        if not had_started:
            self.started.set_result(False)
        self.lost.set()
        calls, self._calls = self._calls, {}
        for take in calls.values():
            take(None)
        if had_started:
            self._on_lost()

    def send_order(self, head: dict[str, Any]) -> None:
        """Sends the first frame, which tells the worker what to load."""
        self._write(Frame(head))

    def call(
        self, properties: dict[str, str], contents: Sequence[Content], take: Callable[[Frame | None], bool]
    ) -> None:
        """Sends a request; `take` gets each frame that answers it until it returns True, or None when there is none."""
        self._next_id += 1
        self._calls[self._next_id] = take
        self._write(Frame({"id": self._next_id, "properties": properties}, contents))

    async def ask(self, properties: dict[str, str], contents: Sequence[Content]) -> Frame:
        """Sends a request and waits for its one answer.

        Raises:
            WorkerFailure: the worker died first.
        """
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

        def take(frame: Frame | None) -> bool:
            if not future.done():
                if frame is None:
                    future.set_exception(WorkerFailure(DISCONNECTED))
                else:
                    future.set_result(frame)
            return True

        self.call(properties, contents, take)
        return await future

    def close(self) -> None:
        """Closes the socket, which ends an idle worker."""
        if self._transport is not None:
            self._transport.abort()

    def _answer(self, frame: Frame) -> None:
        number = frame.head["id"]
        take = self._calls.get(number)
        if take is not None and take(frame):
            self._calls.pop(number, None)

    def _write(self, frame: Frame) -> None:
        if self._transport is None or not self.connected:
            raise WorkerFailure(DISCONNECTED)
        self._transport.write(frame.pack())


_FIRST_ERROR = 300
_OUT_OF_MEMORY = 507
_STARTUP_S = 120
_NOT_STARTED = "Python process startup time out."


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

    def sock_name(self) -> str:
        """Give a place for a worker: what its processes, one after another, find in sys.argv as --sock-name."""
        return self._fork_server.sock_name()

    async def launch(self, sock_name: str, on_lost: Callable[[], None]) -> tuple[int, WorkerLink]:
        """Start a process that has imported its handler: its pid and the link to it; see WorkerLink for `on_lost`.

        Raises:
            EngineFailure: the handler cannot be imported, or that takes over two minutes.
        """
        pid, connection, exited = await self._fork_server.fork(str(self._order["model_dir"]))
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: WorkerLink(on_lost), sock=connection)
        try:
            await self._wait_for_start(link, sock_name, exited)
        except BaseException:
            link.close()
            self._fork_server.kill(pid)
            raise
        return pid, link

    async def _wait_for_start(self, link: WorkerLink, sock_name: str, exited: asyncio.Future[int]) -> None:
        try:
            async with asyncio.timeout(_STARTUP_S):
                link.send_order(self._order | {"sock_name": sock_name})
                started = await link.started
        except TimeoutError:
            raise EngineFailure(_NOT_STARTED) from None
        except WorkerFailure as failure:
            raise EngineFailure(f"Failed to initialize model: {failure.message}") from failure
        if not started:
            raise EngineFailure(f"Python stream closed unexpectedly, exit code: {await asyncio.shield(exited)}")

    async def load(self, pid: int, link: WorkerLink) -> None:
        """Make a process's first call, which loads the model.

        Raises:
            EngineFailure: the call fails, the process ends, or it takes longer than `option.model_loading_timeout`.
            EngineOutOfMemory: the handler ran out of memory.
        """
        try:
            async with asyncio.timeout(self._settings.loading_timeout_s):
                _check(await link.ask(dict(self._settings.properties), ()))
        except TimeoutError:
            # The real server's answer carries no message here either.
            raise EngineFailure from None
        except WorkerFailure as failure:
            raise EngineFailure(f"Failed to initialize model: {failure.message}") from failure
        self._fork_server.loaded.add(pid)

    def kill(self, pid: int) -> None:
        """End a process at once, whatever it is doing."""
        self._fork_server.kill(pid)


def _check(frame: Frame) -> None:
    code = frame.head["code"]
    if code == _OUT_OF_MEMORY:
        raise EngineOutOfMemory
    if code >= _FIRST_ERROR:
        raise EngineFailure(f"Failed to initialize model: {frame.head['message']}")
