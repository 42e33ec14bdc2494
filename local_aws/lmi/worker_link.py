"""One worker process as the container sees it: calls by number over a socket, and the news of its death."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from local_aws.lmi.faults import WorkerFailure
from local_aws.lmi.frames import Frame, FrameReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from local_aws.lmi.frames import Content

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
