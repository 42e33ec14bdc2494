"""A proxy in front of DJL Serving. The proxy accepts only callers with its access token, which each start renews.

DJL Serving does not check the Host and Origin headers, and its `POST /models` runs the code in any folder that a
request names. DJL Serving therefore listens on a Unix socket if possible, because web pages cannot reach one. Callers
connect to this proxy instead, which makes the same checks as the embedded container (cohost/callers.py). The proxy
forwards an answer's status, reason, header fields and body unchanged.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

import httpx
import uvicorn

from cohost.callers import Guard
from local_aws.engines.engine import EngineError
from local_aws.kit.account import bound_listener
from local_aws.lmi.errors import Fault, Forbidden
from local_aws.lmi.server.http import REASON_HEADER, fault_reply, new_request_id, server_settings

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Iterator

    from cohost.callers import Message, Receive, Send

UNIX: Final = "unix:"
# Header fields of the connection, not of the message (RFC 9110, 7.6.1), and `expect`, which uvicorn answers by itself.
_OF_THE_CONNECTION: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect")
)
_CONNECT_TIMEOUT_S: Final = 5.0
_BACKLOG: Final = 1024


class BadGateway(Fault):
    """The error answer to a request that the server behind the proxy does not answer."""

    status = 502
    kind = "BadGatewayException"


class Proxy:
    """An ASGI application that forwards each request to the server at `address` (a URL, or `unix:` and a path)."""

    def __init__(self, address: str) -> None:
        self._address = address
        path = address.removeprefix(UNIX) if address.startswith(UNIX) else None
        self._base = "http://localhost" if path else address
        transport = httpx.AsyncHTTPTransport(uds=path, limits=httpx.Limits(max_connections=None))
        # No time limit for loads and calls here; the callers have their own.
        self._client = httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Forward one request to the server, and stream the server's answer back."""
        try:
            answer = await self._client.send(self._request(scope, receive), stream=True)
        except httpx.TransportError as error:
            await _refuse_with(BadGateway(f"The server at {self._address} does not answer: {error}"), send)
            return
        try:
            await send({"type": "http.response.start", "status": answer.status_code, "headers": _fields_of(answer)})
            async for part in answer.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await answer.aclose()

    def _request(self, scope: Message, receive: Receive) -> httpx.Request:
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        fields = scope["headers"]
        sends_body = any(name in {b"content-length", b"transfer-encoding"} for name, _ in fields)
        # Not `client.build_request`, whose own headers (User-Agent and others) would reach handlers as properties.
        request = httpx.Request(
            scope["method"],
            self._base,
            headers=[field for field in fields if field[0] not in _OF_THE_CONNECTION],
            content=_body(receive) if sends_body else None,
        )
        request.extensions = {**request.extensions, "target": target, "timeout": self._client.timeout.as_dict()}
        return request


@contextlib.contextmanager
def guarded_proxy(port: int, token: str, address: str) -> Iterator[None]:
    """Run a proxy for `address` in a thread, on a port of 127.0.0.1; it accepts callers that send `token`.

    Raises:
        EngineError: the port cannot be used, for example because another program listens on it.
    """
    server = uvicorn.Server(server_settings(Guard(Proxy(address), token, _refuse)))
    with _listener(port) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="proxy", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.should_exit = server.force_exit = True
            thread.join()


def _listener(port: int) -> socket.socket:
    try:
        return bound_listener(port, backlog=_BACKLOG)
    except OSError as error:
        raise EngineError(
            "engine-port-taken",
            "--port",
            f"{port} on 127.0.0.1 cannot be used ({error.strerror})",
            allowed="a free port",
            fix="choose another, or 0 for any free one",
        ) from error


def _fields_of(answer: httpx.Response) -> list[tuple[bytes, bytes]]:
    fields = [(name.lower(), value) for name, value in answer.headers.raw if name.lower() not in _OF_THE_CONNECTION]
    if answer.reason_phrase:
        # The HTTP protocol class of server_settings turns this header field into the reason of the status line.
        fields.append((REASON_HEADER.encode(), answer.reason_phrase.encode("latin-1")))
    return fields


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise httpx.ReadError("the caller has gone")
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


async def _refuse(reason: str, send: Send) -> None:
    await _refuse_with(Forbidden(reason), send)


async def _refuse_with(fault: Fault, send: Send) -> None:
    await fault_reply(fault).send(send, new_request_id(None), close=True)
