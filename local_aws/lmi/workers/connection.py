"""The socket between the container and a worker process: its frames, and the container's end of the socket.

A frame consists of two unsigned 32-bit lengths in bytes (network order), a JSON head of the first length, and a body of
the second length. The body is the concatenation of the frame's contents, unencoded; the head lists their keys and
sizes.
"""

from __future__ import annotations

import asyncio
import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from local_aws.lmi.errors import WorkerFailure

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence


Content = tuple["str | None", bytes]

_LENGTHS = struct.Struct("!II")
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Frame:
    """One message on the socket: `head` holds plain JSON values, `contents` the (key, bytes) pairs of the message."""

    head: dict[str, Any]
    contents: Sequence[Content] = field(default_factory=tuple)

    def pack(self) -> bytes:
        """Return the frame as bytes for the socket."""
        layout = [[key, len(value)] for key, value in self.contents]
        head = json.dumps([self.head, layout]).encode()
        body = [value for _, value in self.contents]
        return b"".join([_LENGTHS.pack(len(head), sum(map(len, body))), head, *body])


class FrameReader:
    """The reader that cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take the next bytes of the stream and yield each frame that they complete."""
        self._buffer += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        if len(self._buffer) < _LENGTHS.size:
            return None
        head_size, body_size = _LENGTHS.unpack_from(self._buffer)
        end = _LENGTHS.size + head_size + body_size
        if len(self._buffer) < end:
            return None
        frame = _parse(bytes(self._buffer[_LENGTHS.size : end]), head_size)
        del self._buffer[:end]
        return frame


def receive(connection: socket.socket, reader: FrameReader) -> Iterator[Frame]:
    """Yield the frames that arrive on a blocking socket, until its other end closes."""
    while data := connection.recv(_CHUNK):
        yield from reader.feed(data)


def _parse(data: bytes, head_size: int) -> Frame:
    head, layout = json.loads(data[:head_size])
    contents: list[Content] = []
    start = head_size
    for key, size in layout:
        contents.append((key, data[start : start + size]))
        start += size
    return Frame(head, contents)


DISCONNECTED = "java.util.concurrent.ExecutionException: java.io.IOException: Python worker disconnected."


class WorkerConnection(asyncio.Protocol):
    """The container's end of the socket to a worker: it sends requests, and gives each answer to the waiting call.

    `on_lost` is called once, when the socket of a worker that had imported its handler has closed: the worker closed
    it or died, or `close` was called.
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
        """Return True if the socket to the worker is open."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the socket, which is open now (called by asyncio)."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what asyncio hands a stream protocol
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Handle the worker's frames: the message that it has started, and its answers (called by asyncio)."""
        for frame in self._frames.feed(data):
            if "started" in frame.head:
                self.started.set_result(True)
            else:
                self._answer(frame)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - any end is a lost worker
        """Fail every waiting call at once, because the worker has ended (called by asyncio)."""
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
        """Send a frame that is not a request: the first frame, which names the model to load, or a fault to inject."""
        self._write(Frame(head))

    def call(
        self, properties: dict[str, str], contents: Sequence[Content], take: Callable[[Frame | None], bool]
    ) -> None:
        """Send a request. `take` gets each frame of the answer until it returns True, or None if the worker ends."""
        self._next_id += 1
        self._calls[self._next_id] = take
        self._write(Frame({"id": self._next_id, "properties": properties}, contents))

    async def ask(self, properties: dict[str, str], contents: Sequence[Content]) -> Frame:
        """Send a request and wait for its one answer.

        Raises:
            WorkerFailure: the worker died before it answered.
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
        """Close the socket, which ends an idle worker."""
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
