"""HTTP/1.1 in the form of DJL Serving: its own reason phrases in status lines, JSON texts, fixed headers.

ASGI has no field for a reason phrase, so an application puts the phrase into a header that is never sent. The real
server sometimes closes a connection without an answer. ASGI gives no access to the connection, so this module puts it
into the request's scope.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import uuid
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from local_aws.lmi.answers import fault_text, pretty

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from local_aws.lmi.errors import Fault
    from local_aws.lmi.workers.jobs import Job


OWN_ROUTES = "/_cohost/"  # the prefix of routes that the real server does not have
REASON_HEADER = "x-lmi-internal-reason"

NO_CACHE = (
    (b"pragma", b"no-cache"),
    (b"cache-control", b"no-cache; no-store, must-revalidate, private"),
    (b"expires", b"Thu, 01 Jan 1970 00:00:00 UTC"),
)

_CONNECTION = "lmi.connection"
_HEAD_LIMIT = 65536  # bytes of a request's head; h11's own default is 16 KiB
_GRACE_S = 2
_KEEP_ALIVE_S = 60
# SO_LINGER on, with 0 s to send what is left: closing the socket then resets the caller's connection.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_REASON_FIELD = REASON_HEADER.encode()
_KEEP_ALIVE = (b"connection", b"keep-alive")
_CLOSE_LINE = re.compile(rb"\r\nconnection: close\r\n", re.IGNORECASE)
_INVALID = {"code": 400, "type": "BadRequestException", "message": "Invalid HTTP message."}


class _ReasonConnection(h11.Connection):
    def send(self, event: Any) -> Any:  # the types depend on the event
        if not isinstance(event, h11.Response):
            return super().send(event)
        head = super().send(_with_reason(event))
        if head is not None and _KEEP_ALIVE in event.headers:
            # h11 replaces "keep-alive" by "close" if the caller asked for it; the real server does not (recorded: 19).
            return _CLOSE_LINE.sub(b"\r\nconnection: keep-alive\r\n", head)
        return head


class NetworkThreads:
    """Imitate the real server's threads that read requests: each new connection goes to the next thread, round robin.

    A thread that waits for a locked worker no longer serves any of its connections (recording 31).
    """

    def __init__(self, count: int) -> None:
        """Start with `count` threads, all of which serve their connections."""
        self._count = count
        self._next = 0
        self._stuck: set[int] = set()

    def take(self) -> int:
        """Return the number of the thread for the next connection."""
        self._next = (self._next + 1) % self._count
        return self._next

    def stick(self, thread: int) -> None:
        """Make a thread serve none of its connections from now on."""
        self._stuck.add(thread)

    def serves(self, thread: int) -> bool:
        """Return True if the thread of this number still serves its connections."""
        return thread not in self._stuck


class LmiHttpProtocol(H11Protocol):
    """uvicorn's h11 protocol; it sends the answers' own reason phrases, and puts itself into each request's scope."""

    threads = NetworkThreads(4)

    def __init__(self, config: Config, **arguments: Any) -> None:  # the arguments are passed on to uvicorn
        super().__init__(config, **arguments)
        self.conn = _ReasonConnection(h11.SERVER, _HEAD_LIMIT)
        self._served = self.app
        self.app = self._serve
        self._thread: int | None = None
        self._job: Job | None = None
        self._given_up: asyncio.Future[None] | None = None

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[_CONNECTION] = self
        if not scope["path"].startswith(OWN_ROUTES):
            if self._thread is None:
                self._thread = self.threads.take()
            if not self.threads.serves(self._thread):
                self._given_up = asyncio.get_running_loop().create_future()
                await self._given_up
                return
        await self._served(scope, receive, send)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the job of the connection's current request that the caller has left."""
        super().connection_lost(exc)
        if self._job is not None:
            self._job.leave()
        if self._given_up is not None and not self._given_up.done():
            self._given_up.set_result(None)

    def belongs_to(self, job: Job) -> None:
        """Set the job of the connection's current request; the job's `leave` is called if the caller disconnects."""
        self._job = job

    def stick(self) -> None:
        """Make the thread of this connection serve none of its connections from now on."""
        if self._thread is not None:
            self.threads.stick(self._thread)

    def reset(self) -> None:
        """Close the connection without an answer."""
        if self.cycle is not None:
            # Otherwise uvicorn sends 500, because the application has not answered.
            self.cycle.disconnected = True
        if (end := self.transport.get_extra_info("socket")) is not None and not self.transport.is_closing():
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the real server has one text for all
        """Answer a request that is not valid HTTP with 400, in DJL Serving's JSON."""
        body = json.dumps(_INVALID, indent=2).encode() + b"\n"
        headers = [
            (b"content-type", b"application/json"),
            (b"x-request-id", str(uuid.uuid4()).encode()),
            *NO_CACHE,
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            (_REASON_FIELD, b"Invalid HTTP message."),
        ]
        events = [h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()]
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()


def _with_reason(response: h11.Response) -> h11.Response:
    reason = next((value for name, value in response.headers if name == _REASON_FIELD), None)
    if reason is None:
        return response
    headers = [(name, value) for name, value in response.headers if name != _REASON_FIELD]
    return h11.Response(status_code=response.status_code, headers=headers, reason=reason)


def server_settings(app: ASGIApp) -> Config:
    """Return uvicorn's settings for an application: the container's, or a proxy in front of a real DJL Serving."""
    return Config(
        app,
        http=LmiHttpProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        backlog=1024,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )


def connection_of(scope: MutableMapping[str, Any]) -> LmiHttpProtocol | None:
    """Return the connection of a request; None if the application is not run by this module's server."""
    connection: LmiHttpProtocol | None = scope.get(_CONNECTION)
    return connection


JSON_HEADERS = {"content-type": "application/json"}

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]+")
_FRAMING_HEADERS = {"content-length", "connection", "transfer-encoding", REASON_HEADER}
_CLOSING_STATUS = 400


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer; `reason` replaces the usual reason phrase of the status line."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] | None = None
    reason: str | None = None

    async def send(self, send: Send, request_id: str, *, close: bool = False) -> None:
        """Send the answer; close the connection if `close`, or if the status is 400 or above, as the real server does.

        If the caller asks to close the connection, it closes, but the answer's header is "keep-alive" (recording 19).
        """
        closing = close or self.status >= _CLOSING_STATUS
        headers = _header_fields(self.headers or {})
        headers += [(b"x-request-id", _visible(request_id)), *NO_CACHE]
        if self.status != HTTPStatus.NO_CONTENT:
            headers.append((b"content-length", str(len(self.body)).encode()))
        headers.append((b"connection", b"close" if closing else b"keep-alive"))
        if self.reason:
            headers.append((REASON_HEADER.encode(), _visible(self.reason)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        body = b"" if self.status == HTTPStatus.NO_CONTENT else self.body
        await send({"type": "http.response.body", "body": body})


def json_reply(value: Any, status: int = 200) -> Reply:
    """Return an answer of the server itself, with `value` as its JSON body."""
    return Reply(status, pretty(value).encode(), JSON_HEADERS)


def fault_reply(fault: Fault) -> Reply:
    """Return the error answer of a fault, with the body `{"code", "type", "message"}`."""
    return Reply(fault.status, fault_text(fault).encode(), JSON_HEADERS, fault.reason)


def new_request_id(given: str | None) -> str:
    """Return the request id of an answer: the caller's id if it gave one, else a new id."""
    return given if given is not None else str(uuid.uuid4())


def _header_fields(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return the headers that HTTP allows; a handler may also set others, which are left out."""
    return [
        (name.lower().encode(), _visible(value))
        for name, value in headers.items()
        if _HEADER_NAME.fullmatch(name) and name.lower() not in _FRAMING_HEADERS
    ]


def _visible(value: str) -> bytes:
    return _UNPRINTABLE.sub(" ", value).strip().encode("latin-1", "replace")
