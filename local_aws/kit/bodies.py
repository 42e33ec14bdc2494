"""Limits of request bodies: the bytes of one body, the bytes of all bodies together, and the number of open requests.

Every emulated service reads a request's whole body into memory, so without limits callers could fill the server's
memory. This module reserves memory for a longer body before the body is read, and frees the memory when the request
ends. Further callers wait until memory is free; until then the server does not read the rest of their bodies.
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
    """The error for a body that is longer than the limit of its reader."""


class BusyError(Exception):
    """The error for a server that already works on the allowed number of requests, or has no memory left for a body."""


class CallerLeftError(Exception):
    """The caller closed the connection before the end of the body, so nobody waits for an answer."""


class BodyMemory:
    """The limited memory for the bodies of all requests that a server works on.

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
        """Count a request while the `with` block runs, and free the memory of its body at the end.

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
        """Reserve `count` bytes; requests that wait for memory get it in the order of their arrival.

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
    """The body of one request; `reserved` is the number of bytes of `BodyMemory` that are reserved for it."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.reserved = 0

    async def read(self, receive: Receive, headers: Mapping[str, str], limit_bytes: int) -> bytes:
        """Read the whole body. If the body comes in several pieces, reserve memory before the second.

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
    """Return a body's length as its headers state it, without the signatures of chunks; 0 if no header states it."""
    stated = (headers.get(name, "") for name in ("content-length", "x-amz-decoded-content-length"))
    return next((int(text) for text in stated if text.isdecimal()), 0)


def _most_bytes(headers: Mapping[str, str], limit_bytes: int) -> int:
    """Return the largest size in bytes that a body with these headers can have."""
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
    """Read and discard a refused body, up to DROPPED_BYTES, so that its caller then reads the answer."""
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
    """Return an ASGI `receive` that first delivers `body`, which was read already, and then the messages after it."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def deliver() -> Message:
        return left.pop() if left else await receive()

    return deliver


def gzip_exceeds(data: bytes, limit_bytes: int) -> bool:
    """Return True if gzip data unpack to more than `limit_bytes`; stop unpacking at that size."""
    unpacking = zlib.decompressobj(wbits=31)
    try:
        return len(unpacking.decompress(data, limit_bytes + 1)) > limit_bytes
    except zlib.error:
        return False
