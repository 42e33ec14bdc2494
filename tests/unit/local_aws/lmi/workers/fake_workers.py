"""Fake worker processes, which answer, hang and die as a test requests."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from local_aws.lmi.errors import EngineFailure, WorkerFailure
from local_aws.lmi.workers.connection import DISCONNECTED, Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from local_aws.lmi.workers.connection import Content

FIRST_PID = 1001


class FakeConnection:
    """A process that answers "ok", or does not answer while its starter hangs."""

    def __init__(self, starter: FakeStarter, on_lost: Callable[[], None]) -> None:
        self.connected = True
        self._starter = starter
        self._on_lost = on_lost
        self.asked: list[asyncio.Future[Frame]] = []
        self._called: list[Callable[[Frame | None], bool]] = []

    async def ask(self, properties: dict[str, str], contents: Sequence[Content]) -> Frame:
        """Take a request of a synchronous handler; answer it unless told to hang."""
        self._starter.batches.append(int(properties.get("batch_size", "1")))
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.asked.append(future)
        if not self._starter.hanging:
            keys = [key for key, _ in contents]
            future.set_result(_frame([(key, b"ok") for key in keys]))
        return await future

    def call(
        self,
        properties: dict[str, str],  # noqa: ARG002 - as a connection has it
        contents: Sequence[Content],  # noqa: ARG002
        take: Callable[[Frame | None], bool],
    ) -> None:
        """Take a request of an asynchronous handler; answer it unless told to hang."""
        self._starter.batches.append(1)
        if self._starter.hanging:
            self._called.append(take)
        else:
            take(_frame([(None, _entries({"data": "ok", "last": "true"}))]))

    def die(self) -> None:
        """End like a killed process: calls fail, and the worker process is notified once."""
        if not self.connected:
            return
        self.connected = False
        for future in self.asked:
            if not future.done():
                future.set_exception(WorkerFailure(DISCONNECTED))
        for take in self._called:
            take(None)
        self._on_lost()

    def close(self) -> None:
        """End a process as the container does; the notification follows a moment later."""
        asyncio.get_running_loop().call_soon(self.die)


class FakeStarter:
    """Starts fake processes, `alive` by pid; the next `broken_imports` fail to start, the next `broken_loads` to load.

    With `exits` a process that fails to load has ended by itself; while `loading` is not set, loads wait.
    """

    def __init__(self) -> None:
        self.connections: list[FakeConnection] = []
        self.batches: list[int] = []
        self.broken_imports = 0
        self.broken_loads = 0
        self.exits = False
        self.hanging = False
        self.loading = asyncio.Event()
        self.loading.set()

    @property
    def alive(self) -> list[int]:
        """The pids of the processes that live, the oldest first."""
        return [pid for pid, connection in enumerate(self.connections, FIRST_PID) if connection.connected]

    def sock_name(self) -> str:
        """Give any name."""
        return "/tmp/djl_sock.19000"  # noqa: S108 - nothing is there

    async def launch(self, sock_name: str, on_lost: Callable[[], None]) -> tuple[int, FakeConnection]:  # noqa: ARG002
        """Start a process, or fail as asked for."""
        await asyncio.sleep(0)
        if self.broken_imports:
            self.broken_imports -= 1
            raise EngineFailure("Python stream closed unexpectedly, exit code: 1")
        self.connections.append(FakeConnection(self, on_lost))
        return FIRST_PID - 1 + len(self.connections), self.connections[-1]

    async def load(self, pid: int, connection: FakeConnection) -> None:  # noqa: ARG002 - as a starter has it
        """Load, or fail as asked for."""
        await self.loading.wait()
        await asyncio.sleep(0)
        if self.broken_loads:
            self.broken_loads -= 1
            if self.exits:
                connection.die()
            raise EngineFailure("Failed to initialize model: no")

    def kill(self, pid: int) -> None:
        """Kill by pid."""
        self.connections[pid - FIRST_PID].die()


def _frame(contents: Sequence[Content]) -> Frame:
    return Frame({"id": 1, "code": 200, "message": "OK", "properties": {}}, contents)


def _entries(texts: dict[str, str]) -> bytes:
    """Return the bytes of `Output.binary_encode`."""
    data = struct.pack(">h", len(texts))
    for text in (text for pair in texts.items() for text in pair):
        data += struct.pack(">i", len(text)) + text.encode()
    return data
