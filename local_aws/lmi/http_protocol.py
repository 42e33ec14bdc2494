"""HTTP/1.1 as DJL Serving speaks it, on uvicorn: status lines with reasons of their own, JSON for broken requests.

ASGI has no place for a reason phrase, so an answer carries it in a header that never leaves the process.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import h11

from local_aws.one_write import OneWriteConnection, OneWriteProtocol

REASON_HEADER = "x-lmi-internal-reason"

NO_CACHE = (
    (b"pragma", b"no-cache"),
    (b"cache-control", b"no-cache; no-store, must-revalidate, private"),
    (b"expires", b"Thu, 01 Jan 1970 00:00:00 UTC"),
)

_REASON_FIELD = REASON_HEADER.encode()
_INVALID = {"code": 400, "type": "BadRequestException", "message": "Invalid HTTP message."}


class _ReasonConnection(OneWriteConnection):
    def send(self, event: Any) -> Any:  # noqa: ANN401 - one method of many signatures
        return super().send(_with_reason(event) if isinstance(event, h11.Response) else event)


class LmiHttpProtocol(OneWriteProtocol):
    """uvicorn's h11 protocol with reasons taken from answers."""

    connection_type = _ReasonConnection

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


def _with_reason(response: h11.Response) -> h11.Response:
    reason = next((value for name, value in response.headers if name == _REASON_FIELD), None)
    if reason is None:
        return response
    headers = [(name, value) for name, value in response.headers if name != _REASON_FIELD]
    return h11.Response(status_code=response.status_code, headers=headers, reason=reason)
