"""The front door: sends each request to the service that its signature names, and keeps answers clean.

AWS requests carry their service in the SigV4 credential scope `KEY/DATE/REGION/SERVICE/aws4_request`, in the
Authorization header or, when presigned, in the query parameter `X-Amz-Credential` (AWS: "Signature Version 4").
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from starlette.datastructures import Headers
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# `uvicorn` is told to write neither; an answer that holds either twice ends the cdk CLI with "Invalid time value".
SINGLE_HEADERS: Final = (b"date", b"server")
SERVER_NAME: Final = b"lmi-cohost-local-aws"
# V4: KEY/DATE/REGION/SERVICE/aws4_request. V4a has no region.
SCOPE_PARTS: Final = 5


@dataclass(frozen=True)
class CredentialScope:
    """The service and the region that a request was signed for; `region` is None for V4a signatures."""

    service: str
    region: str | None


def credential_scope(headers: Mapping[str, str], query_string: bytes) -> CredentialScope | None:
    """Reads the service and region from a request's signature; None for an unsigned request."""
    authorization = headers.get("authorization", "")
    if authorization.startswith("AWS4-"):
        for part in authorization.partition(" ")[2].split(","):
            name, _, value = part.strip().partition("=")
            if name == "Credential":
                return _parse_scope(value)
        return None
    credential = parse_qs(query_string.decode("latin-1")).get("X-Amz-Credential")
    return _parse_scope(credential[0]) if credential else None


def _parse_scope(credential: str) -> CredentialScope | None:
    parts = credential.split("/")
    if len(parts) < SCOPE_PARTS - 1:
        return None
    return CredentialScope(service=parts[-2].lower(), region=parts[-3] if len(parts) >= SCOPE_PARTS else None)


def aws_error(headers: Mapping[str, str], *, code: str, message: str, status: int = 400) -> Response:
    """An error in the wire format of the caller's protocol: JSON where it speaks JSON, else XML."""
    request_id = str(uuid.uuid4())
    shared = {"x-amzn-RequestId": request_id, "x-amzn-errortype": code}
    if "x-amz-target" in headers or "json" in headers.get("content-type", ""):
        body = json.dumps({"__type": code, "message": message})
        return Response(body, status, shared, media_type="application/x-amz-json-1.1")
    xml = (
        f"<ErrorResponse><Error><Type>Sender</Type><Code>{escape(code)}</Code>"
        f"<Message>{escape(message)}</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return Response(xml, status, shared, media_type="text/xml")


def foreign_caller(headers: Mapping[str, str]) -> str | None:
    """Why a request does not come from a program on this machine that means us; None when it does.

    Whoever may call this server may run code on this machine (a Lambda function). No SDK sends an Origin, every
    browser does for another site's page; and a name that merely resolves to 127.0.0.1 is a web page's trick too.
    """
    if "origin" in headers:
        return f"Origin {headers['origin']}: web pages may not call the local AWS."
    host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
    if host in {"127.0.0.1", "localhost"} or host.endswith(".localhost"):
        return None
    return f"Host {host}: the local AWS answers to 127.0.0.1 and localhost only."


class Gateway:
    """The ASGI app of the front door.

    Args:
        services: our own apps by signing name, e.g. `{"cloudformation": …}`.
        pages: apps by path, for unsigned requests that are no AWS's.
        others: the app for all other services and for unsigned requests.
    """

    def __init__(self, *, services: Mapping[str, ASGIApp], pages: Mapping[str, ASGIApp], others: ASGIApp) -> None:
        self._services = services
        self._pages = pages
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on; the answer has one Date and one Server header whatever the service wrote."""
        headers = Headers(scope=scope)
        refusal = foreign_caller(headers)
        if refusal is not None:
            await aws_error(headers, code="AccessDenied", message=refusal, status=403)(scope, receive, send)
            return
        signed = credential_scope(headers, scope["query_string"])
        scope["aws_scope"] = signed
        known, name = (self._pages, scope["path"]) if signed is None else (self._services, signed.service)
        app = known.get(name, self._others)
        await app(scope, receive, single_headers(send))


def single_headers(send: Send) -> Send:
    """Wrap `send` so that an answer starts with exactly one Date and one Server header."""

    async def clean(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message["headers"] if name.lower() not in SINGLE_HEADERS]
            date = formatdate(usegmt=True).encode()
            message = {**message, "headers": [*kept, (b"date", date), (b"server", SERVER_NAME)]}
        await send(message)

    return clean
