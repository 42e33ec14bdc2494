"""Limits of the bodies of requests: bytes of one body, bytes of all bodies at once, and requests at work.

Every service of the emulation reads a request's body as a whole. Without limits, the memory of the server would be
as large as its callers wish. A body is read only after its bytes are reserved here, and the bytes are free again when
its request ends; meanwhile further callers wait, and their connections hold what they still have to send.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.types import Message, Receive

MIB: Final = 1024 * 1024
# The bytes by which a body in chunks may be longer than its `x-amz-decoded-content-length`: the signatures and sizes of
# the chunks, about 90 bytes for each 8 KiB, and the trailing checksum.
CHUNK_FRAMES_BYTES: Final = 64 * 1024
CHUNK_FRAMES_PART: Final = 64
# What is read and dropped of a refused body, before the connection is closed under its caller.
DROPPED_BYTES: Final = 1024 * MIB
DROPPED_S: Final = 5.0


class BodyTooLargeError(Exception):
    """A body is longer than its reader takes, or than its headers said."""


class BusyError(Exception):
    """The server works on as many requests, or holds as many bytes of bodies, as it may."""


class CallerLeftError(Exception):
    """The caller closed the connection before the whole body had come; nobody waits for an answer."""


class BodyMemory:
    """The memory for the bodies of all requests of a server.

    Args:
        total_bytes: the bytes that all bodies together may take.
        wait_s: the longest time that a request waits for memory.
        most_requests: the number of requests that the server works on at once.
    """

    def __init__(self, *, total_bytes: int, wait_s: float, most_requests: int) -> None:
        self._total = self._free = total_bytes
        self._wait_s = wait_s
        self._requests = most_requests
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def request(self) -> AsyncIterator[RequestBody]:
        """Count a request for as long as the block runs, and free its memory at the end.

        Raises:
            BusyError: the server works on as many requests as it may.
        """
        if not self._requests:
            raise BusyError("too many requests at once")
        self._requests -= 1
        body = RequestBody(self)
        try:
            yield body
        finally:
            self._requests += 1
            self.free(body.reserved)

    async def reserve(self, count: int) -> None:
        """Reserve so many bytes; requests that wait for memory get it in the order in which they came.

        Raises:
            BusyError: the memory was not free in time.
        """
        if count <= self._free and not self._waiting:
            self._free -= count
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.free(count)
            else:
                self._waiting.remove((count, turn))
                self._serve_waiting()
            if isinstance(error, TimeoutError):
                raise BusyError(f"no memory for a body of {count} bytes within {self._wait_s:g} s") from error
            raise

    def free(self, count: int) -> None:
        """Give bytes back."""
        self._free = min(self._total, self._free + count)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            count, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= count
                turn.set_result(None)


class RequestBody:
    """The body of one request; `reserved` is the number of bytes that it holds in the memory of its server."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.reserved = 0

    async def read(self, receive: Receive, headers: Mapping[str, str], limit_bytes: int) -> bytes:
        """Read the whole body. A body that comes in one piece is read as it is, a longer one after memory was reserved.

        Args:
            receive: the request's ASGI `receive`, whose pieces have 64 KiB at most.
            headers: the request's headers, by names in lower case.
            limit_bytes: the longest body that the reader takes.

        Raises:
            BodyTooLargeError: the body is longer, by its headers or when it is read; the rest was read and dropped, so
                that the caller reads the answer, if the caller sends it without asking (`Expect: 100-continue`).
            BusyError: the memory was not free in time.
            CallerLeftError: the caller closed the connection before the end of the body.
        """
        if _stated_bytes(headers) > limit_bytes:
            await _drop(receive, headers)
            raise BodyTooLargeError
        message = await _next(receive)
        body = bytearray(message.get("body", b""))
        more = message.get("more_body", False)
        if more:
            expected = _most_bytes(headers, limit_bytes)
            await self._memory.reserve(expected)
            self.reserved += expected
        while more and len(body) <= limit_bytes:
            message = await _next(receive)
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if len(body) > limit_bytes:
            body.clear()
            if more:
                await _drop(receive, headers)
            raise BodyTooLargeError
        return bytes(body)


def _stated_bytes(headers: Mapping[str, str]) -> int:
    """Return the length of a body by its headers, of a body in chunks without their frames; 0 if they do not say it."""
    stated = (headers.get(name, "") for name in ("content-length", "x-amz-decoded-content-length"))
    return next((int(text) for text in stated if text.isdecimal()), 0)


def _most_bytes(headers: Mapping[str, str], limit_bytes: int) -> int:
    """Return the most bytes that a body can have by its headers."""
    stated = _stated_bytes(headers)
    if headers.get("content-length", "").isdecimal():
        return stated
    return min(limit_bytes, stated + stated // CHUNK_FRAMES_PART + CHUNK_FRAMES_BYTES) if stated else limit_bytes


async def _next(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise CallerLeftError
    return message


async def _drop(receive: Receive, headers: Mapping[str, str]) -> None:
    """Read what a caller sends of a body that is refused, without keeping it, up to DROPPED_BYTES."""
    if "expect" in headers:
        return
    dropped = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DROPPED_S):
            while dropped < DROPPED_BYTES:
                message = await _next(receive)
                dropped += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def again(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` that delivers `body`, which was read before, and then the messages that follow it."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def deliver() -> Message:
        return left.pop() if left else await receive()

    return deliver


def gzip_exceeds(data: bytes, limit_bytes: int) -> bool:
    """Return True if gzip data unpack to more than `limit_bytes`; they are unpacked only so far."""
    unpacking = zlib.decompressobj(wbits=31)
    try:
        return len(unpacking.decompress(data, limit_bytes + 1)) > limit_bytes
    except zlib.error:
        return False
