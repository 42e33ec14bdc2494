"""The httpx transport for requests to containers: HTTP/1.1 on keep-alive connections, one write per request.

The transport replaces the default transport of httpx. Measured with httpx 0.28.1 and httpcore 1.0.9, both transports
called alternately (benchmarks/local_call.py, 32 callers): a call takes 0.84 ms of CPU time of the front door
(local_aws/gateway.py, which accepts all requests) with this transport and 2.96 ms with the default one. At 2.96 ms the
front door's one thread can pass on 340 calls per second; the goal is 600. The front door passed on 651 calls per second
with this transport and 230 with the default one. docs/decisions/0010-http-to-containers.md has the numbers and causes.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import h11
import httpx

if TYPE_CHECKING:
    from collections.abc import Callable


# Well below the time after which a container closes an idle connection, so that none is closed during a request.
_KEEP_S = 30.0
# InvokeEndpoint's answer has 6,291,456 bytes at most (AWS API reference); nobody has seen what becomes of a longer one.
# This bound only protects the memory of the front door.
ANSWER_BYTES = 64 * 1024 * 1024


class ContainerTransport(httpx.AsyncBaseTransport):
    """The pool of connections to this machine's containers; a connection serves one request at a time and is reused."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, int | None], list[_Connection]] = defaultdict(list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the answer with its whole body.

        Raises:
            httpx.ConnectError, httpx.ConnectTimeout: the container cannot be connected to.
            httpx.ReadTimeout: the container did not answer within the request's read time-out.
            httpx.RemoteProtocolError: the connection ended before the answer did, or the answer is not HTTP or has over
                ANSWER_BYTES bytes.
        """
        limits = request.extensions.get("timeout", {})
        body = await request.aread()
        idle = self._idle[request.url.host, request.url.port]
        connection = _usable(idle) or await _connect(request, limits.get("connect"))
        try:
            response = await connection.exchange(request, body, limits.get("read"))
        except BaseException:
            connection.close()
            raise
        if connection.next_cycle():
            idle.append(connection)
        return response

    async def aclose(self) -> None:
        """Close every idle connection."""
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()


class _Connection(asyncio.Protocol):
    """One connection to a container; `exchange` sends a request and waits for its answer."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[httpx.Response] | None = None
        self._head: h11.Response | None = None
        self._body: list[bytes] = []
        self._size = 0
        self._idle_since = time.monotonic()

    @property
    def usable(self) -> bool:
        """True if the connection is open and was idle for under 30 s, too short for the container to close it."""
        return (
            self._transport is not None
            and not self._transport.is_closing()
            and time.monotonic() - self._idle_since < _KEEP_S
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the opened connection's transport."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what asyncio hands a stream protocol
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the parser of the answer."""
        self._take(lambda: self._http.receive_data(data))

    def eof_received(self) -> None:
        """Take the container's end of file as the end of an answer without a length; asyncio closes the connection."""
        self._take(lambda: self._http.receive_data(b""))

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the lost connection to the caller that waits for an answer."""
        self._fail(httpx.RemoteProtocolError(f"the connection ended before the answer did ({exc or 'closed'})"))

    async def exchange(self, request: httpx.Request, body: bytes, limit_s: float | None) -> httpx.Response:
        """Send a request in one write and wait for the whole answer."""
        assert self._transport is not None  # noqa: S101 - set before a caller gets this connection
        loop = asyncio.get_running_loop()
        self._answer, self._head, self._body, self._size = loop.create_future(), None, [], 0
        head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        events = (head, h11.Data(data=body), h11.EndOfMessage())
        self._transport.write(b"".join(self._http.send(event) or b"" for event in events))
        timer = None
        if limit_s is not None:
            timer = loop.call_later(limit_s, self._fail, httpx.ReadTimeout(f"no answer within {limit_s:g} s"))
        try:
            return await self._answer
        finally:
            if timer is not None:
                timer.cancel()

    def next_cycle(self) -> bool:
        """Prepare the connection for another request; if HTTP does not allow one, close it and return False."""
        over = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if over and not self._http.trailing_data[0]:
            self._http.start_next_cycle()
            self._idle_since = time.monotonic()
            return True
        self.close()
        return False

    def close(self) -> None:
        """Close the connection at once, also during an exchange."""
        if self._transport is not None:
            self._transport.abort()

    def _take(self, receive: Callable[[], None]) -> None:
        try:
            receive()
            while isinstance(event := self._http.next_event(), h11.Event):
                match event:
                    case h11.Response():
                        self._head = event
                    case h11.Data():
                        self._add(bytes(event.data))
                    case h11.EndOfMessage():
                        self._finish()
                    case h11.ConnectionClosed():
                        break
        except h11.RemoteProtocolError as error:
            self._fail(httpx.RemoteProtocolError(str(error)))

    def _add(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= ANSWER_BYTES:
            self._body.append(data)
            return
        self._body.clear()
        self._fail(httpx.RemoteProtocolError(f"the answer has over {ANSWER_BYTES} bytes"))
        self.close()

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done() and self._head is not None:
            stream = httpx.ByteStream(b"".join(self._body))
            headers = list(self._head.headers)
            self._answer.set_result(httpx.Response(self._head.status_code, headers=headers, stream=stream))

    def _fail(self, error: httpx.TransportError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


def _usable(idle: list[_Connection]) -> _Connection | None:
    """Return the most recently used connection that is usable, or None; close unusable ones that were used later."""
    while idle:
        if (connection := idle.pop()).usable:
            return connection
        connection.close()
    return None


async def _connect(request: httpx.Request, limit_s: float | None) -> _Connection:
    loop = asyncio.get_running_loop()
    host, port = request.url.host, request.url.port or 80
    try:
        async with asyncio.timeout(limit_s):
            _, connection = await loop.create_connection(_Connection, host, port)
    except TimeoutError as error:
        raise httpx.ConnectTimeout(f"{host}:{port} did not answer within {limit_s} s") from error
    except OSError as error:
        raise httpx.ConnectError(f"{host}:{port} cannot be reached: {error}") from error
    return connection
