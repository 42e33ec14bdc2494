"""HTTP/1.1 as DJL Serving speaks it, on uvicorn: status lines with reasons of their own, JSON for broken requests.

ASGI has no place for a reason phrase, so an answer carries it in a header that never leaves the process.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from uvicorn import Config

REASON_HEADER = "x-lmi-internal-reason"

NO_CACHE = (
    (b"pragma", b"no-cache"),
    (b"cache-control", b"no-cache; no-store, must-revalidate, private"),
    (b"expires", b"Thu, 01 Jan 1970 00:00:00 UTC"),
)

_REASON_FIELD = REASON_HEADER.encode()
_HEAD_LIMIT = 65536  # bytes of a request's head; h11's own default is 16 KiB
_INVALID = {"code": 400, "type": "BadRequestException", "message": "Invalid HTTP message."}


class LmiHttpProtocol(H11Protocol):
    """uvicorn's h11 protocol with reasons taken from answers."""

    def __init__(self, config: Config, **arguments: Any) -> None:  # noqa: ANN401 - uvicorn's own, passed on
        super().__init__(config, **arguments)
        self.conn = _ReasonConnection(h11.SERVER, config.h11_max_incomplete_event_size or _HEAD_LIMIT)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the real server has one text for all
        """Answers a request that is no HTTP, in the server's own JSON."""
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


class _ReasonConnection(h11.Connection):
    def send(self, event: Any) -> Any:  # noqa: ANN401 - one method of many signatures
        return super().send(_with_reason(event) if isinstance(event, h11.Response) else event)


def _with_reason(response: h11.Response) -> h11.Response:
    reason = next((value for name, value in response.headers if name == _REASON_FIELD), None)
    if reason is None:
        return response
    headers = [(name, value) for name, value in response.headers if name != _REASON_FIELD]
    return h11.Response(status_code=response.status_code, headers=headers, reason=reason)
