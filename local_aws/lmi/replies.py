"""Answers on the wire: DJL Serving's JSON text, its standing headers and its rule for closing connections."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from local_aws.lmi.http_protocol import NO_CACHE, REASON_HEADER
from local_aws.lmi.json_text import pretty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Send

    from local_aws.lmi.faults import Fault

JSON_HEADERS = {"content-type": "application/json"}

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]+")
_FRAMING_HEADERS = {"content-length", "connection", "transfer-encoding", REASON_HEADER}
_CLOSING_STATUS = 400


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; `reason` replaces the usual reason of the status line."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] | None = None
    reason: str | None = None

    async def send(self, send: Send, request_id: str, *, close: bool = False) -> None:
        """Write the answer. Answers of 400 and above close the connection, as the real server's do, others on `close`.

        A caller that asks for the connection to be closed gets that, under "keep-alive" (recorded: 19).
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


def json_reply(value: Any, status: int = 200) -> Reply:  # noqa: ANN401 - any JSON value
    """An answer of the server itself."""
    return Reply(status, pretty(value).encode(), JSON_HEADERS)


def fault_reply(fault: Fault) -> Reply:
    """The answer to a fault: `{"code", "type", "message"}`."""
    error: dict[str, Any] = {"code": fault.status, "type": fault.kind}
    if fault.message is not None:
        error["message"] = fault.message
    return Reply(fault.status, pretty(error).encode(), JSON_HEADERS, fault.reason)


def new_request_id(given: str | None) -> str:
    """The id that an answer carries: the caller's own, else a new one."""
    return given if given is not None else str(uuid.uuid4())


def _header_fields(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Header fields that HTTP allows: a handler may name a property anything, which must not break the answer."""
    return [
        (name.lower().encode(), _visible(value))
        for name, value in headers.items()
        if _HEADER_NAME.fullmatch(name) and name.lower() not in _FRAMING_HEADERS
    ]


def _visible(value: str) -> bytes:
    return _UNPRINTABLE.sub(" ", value).strip().encode("latin-1", "replace")
