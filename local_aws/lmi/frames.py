"""What a container and a worker process say to each other: frames on a stream socket.

A frame is two unsigned 32-bit lengths (network order), a JSON head of the first length and a body of the second. The
body is the concatenation of the frame's contents, whose keys and sizes the head lists, so binary data travels as is.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

Content = tuple["str | None", bytes]

_LENGTHS = struct.Struct("!II")
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: `head` holds plain JSON values, `contents` the (key, bytes) pairs that go with it."""

    head: dict[str, Any]
    contents: Sequence[Content] = field(default_factory=tuple)

    def pack(self) -> bytes:
        """The frame as bytes for the socket."""
        layout = [[key, len(value)] for key, value in self.contents]
        head = json.dumps([self.head, layout]).encode()
        body = [value for _, value in self.contents]
        return b"".join([_LENGTHS.pack(len(head), sum(map(len, body))), head, *body])


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Takes the next bytes of the stream and yields each frame that they complete."""
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
    """The frames that a blocking socket brings, until its other end closes."""
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
