"""The gateway: accept requests signed with a known key, and forward each to the service in its credential scope.

An AWS request names its service in the SigV4 credential scope `KEY/DATE/REGION/SERVICE/aws4_request`. The scope is in
the Authorization header or, for a presigned request, in the query parameter `X-Amz-Credential` (AWS: "Signature Version
4").
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from starlette.datastructures import Headers
from starlette.responses import Response

from cohost.callers import foreign_caller
from cohost.deploy.local_aws import PAGES_SERVICE
from local_aws.kit.account import PARTITION
from local_aws.kit.bodies import BodyTooLargeError, BusyError, CallerLeftError, again, gzip_exceeds
from local_aws.rights.judge import SESSIONS, DeniedError
from local_aws.rights.policies import Request
from local_aws.rights.requests import has_judged_body, read_call
from local_aws.signatures import Code, NotSignedRight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from local_aws.kit.bodies import BodyMemory, RequestBody
    from local_aws.rights.judge import Judge
    from local_aws.rights.resource_arns import Call
    from local_aws.signatures import Caller, Verifier

LOGGER: Final = logging.getLogger(__name__)
# `uvicorn` writes neither header: an answer that holds one of them twice ends the cdk CLI with "Invalid time value".
SINGLE_HEADERS: Final = (b"date", b"server")
SERVER_NAME: Final = b"lmi-cohost-local-aws"
_READS: Final = frozenset({"GetObject", "HeadObject"})
DENIED: Final = Code(query="AccessDenied", json="AccessDeniedException", s3="AccessDenied")
# Services whose errors are XML although their requests are not forms.
XML_SERVICES: Final = frozenset({"cloudfront", "route53", "s3", "s3express"})


@dataclass(frozen=True)
class CredentialScope:
    """The service and the region that a request was signed for."""

    service: str
    region: str


def aws_error(headers: Mapping[str, str], *, code: str, message: str, status: int = 400) -> Response:
    """Return an error answer in the format of the request's protocol: JSON if the request uses JSON, else XML."""
    request_id = str(uuid.uuid4())
    shared = {"x-amzn-RequestId": request_id, **_error_type(code)}
    if _speaks_json(headers):
        body = json.dumps({"__type": code, "message": message})
        return Response(body, status, shared, media_type="application/x-amz-json-1.1")
    xml = (
        f"<ErrorResponse><Error><Type>Sender</Type><Code>{escape(code)}</Code>"
        f"<Message>{escape(message)}</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return Response(xml, status, shared, media_type="text/xml")


def refusal(verdict: NotSignedRight, scope: Scope) -> Response:
    """Return the error answer to a request that the gateway refuses, in the format of the service that it is for."""
    headers, code, message = Headers(scope=scope), verdict.code, str(verdict)
    if verdict.service not in XML_SERVICES and _speaks_json(headers):
        return aws_error(headers, code=code.json, message=message, status=code.status)
    if b"Action=" in scope["query_string"] or "form" in headers.get("content-type", ""):
        return aws_error(headers, code=code.query, message=message, status=code.status)
    if verdict.service in XML_SERVICES or verdict.service is None:
        return _s3_error(code.s3, message, code.status)
    # The remaining services use JSON over REST; their requests without a body have no header that says so.
    body = json.dumps({"message": message, "Message": message})
    return Response(body, code.status, _error_type(code.json), media_type="application/json")


def _error_type(code: str) -> dict[str, str]:
    return {"x-amzn-errortype": code} if code else {}


def _s3_error(code: str, message: str, status: int) -> Response:
    request_id = str(uuid.uuid4())
    xml = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{escape(code)}</Code>'
        f"<Message>{escape(message)}</Message><RequestId>{request_id}</RequestId></Error>"
    )
    return Response(xml, status, {"x-amz-request-id": request_id}, media_type="application/xml")


def _speaks_json(headers: Mapping[str, str]) -> bool:
    return "x-amz-target" in headers or "json" in headers.get("content-type", "")


class ThisMachineOnly:
    """The outermost ASGI app of the server, which refuses every request that comes from a web page.

    A caller of the server can run code on this machine, for example as a Lambda function, so no web page may call it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the inner app, or refuse a request from a web page."""
        reason = foreign_caller(Headers(scope=scope)) if scope["type"] == "http" else None
        if reason is None:
            await self._app(scope, receive, send)
            return
        await aws_error(Headers(scope=scope), code="AccessDenied", message=reason, status=403)(scope, receive, send)


class Gateway:
    """The ASGI app of the gateway, for signed requests only.

    The gateway adds two entries to a request's ASGI `scope`: `aws_key`, the `AccessKey` that signed the request, and
    for a request to a service `aws_scope`, the `CredentialScope` of the signature.

    Args:
        memory: the memory for the bodies of all requests.
        verifier: checks the signatures of requests.
        judge: checks that a role has the rights for its calls.
        services: the emulator's own apps by signing name, e.g. `{"cloudformation": …}`.
        pages: apps by path, for requests that are signed for `cohost.deploy.local_aws.PAGES_SERVICE`.
        others: the app for all other services and pages.
    """

    def __init__(
        self,
        *,
        memory: BodyMemory,
        verifier: Verifier,
        judge: Judge,
        services: Mapping[str, ASGIApp],
        pages: Mapping[str, ASGIApp],
        others: ASGIApp,
    ) -> None:
        self._memory = memory
        self._verifier = verifier
        self._judge = judge
        self._services = services
        self._pages = pages
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to its service; the answer gets exactly one Date header and one Server header."""
        send = single_headers(send)
        try:
            async with self._memory.request() as body:
                await self._pass_on(scope, receive, send, body)
        except NotSignedRight as verdict:
            answer = refusal(verdict, scope)
            if "expect" in Headers(scope=scope):
                # The client does not send the body after this answer, so the server must not wait for the body in the
                # bytes of the next request. S3 closes the connection too.
                answer.headers["connection"] = "close"
            await answer(scope, receive, send)
        except BusyError as busy:
            await refusal(NotSignedRight(BUSY, str(busy)), scope)(scope, receive, send)
        except CallerLeftError:
            LOGGER.info("a caller left before the end of its request: %s %s", scope["method"], scope["path"])

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, incoming: RequestBody) -> None:
        async def read_body(service: str) -> bytes:
            limit = body_limit(service, scope["path"])
            headers = Headers(scope=scope)
            try:
                body = await incoming.read(receive, headers, limit.bytes)
            except BodyTooLargeError:
                raise NotSignedRight(limit.code, limit.message, service) from None
            except BusyError as busy:
                raise NotSignedRight(BUSY, str(busy), service) from busy
            if service != "s3" and headers.get("content-encoding") == "gzip" and gzip_exceeds(body, limit.bytes):
                raise NotSignedRight(limit.code, limit.message, service)
            return body

        caller, body = await self._verifier.verify(scope, read_body)
        service = caller.service
        if service != PAGES_SERVICE:
            query = scope["query_string"].decode("latin-1")
            if body is None and has_judged_body(service, query):
                body = await read_body(service)
            call = await self._check_rights(caller, scope, query, body or b"")
            send = self._send_to(caller, call, send)
        if body is None:
            body = await read_body(service)
        await self._app(caller, scope)(scope, again(body, receive), send)

    def _app(self, caller: Caller, scope: Scope) -> ASGIApp:
        scope["aws_key"] = caller.key
        if caller.service == PAGES_SERVICE:
            return self._pages.get(scope["path"], self._others)
        scope["aws_scope"] = CredentialScope(caller.service, caller.region)
        return self._services.get(caller.service, self._others)

    def _send_to(self, caller: Caller, call: Call | None, send: Send) -> Send:
        """Return the ASGI `send` for the answer to a call; for S3 reads it can hide that an object is missing."""
        if call is None or call.service != "s3" or call.operation not in _READS:
            return send
        return self._hiding_absence(caller, call, send)

    def _hiding_absence(self, caller: Caller, call: Call, send: Send) -> Send:
        """Wrap a `send` so that a missing object gives AccessDenied to a caller who may not list the object's key.

        S3 answers 404 to a caller with the permission s3:ListBucket, and 403 to other callers (S3 API reference,
        GetObject and HeadObject). To evaluate this permission, S3 takes the key as the prefix of the listing
        (ceph/ceph#68577, which follows S3).
        """
        bucket, key = call.parameters["Bucket"], call.parameters["Key"]
        listing = Request(
            action="s3:ListBucket", resource=f"arn:{PARTITION}:s3:::{bucket}", context={"s3:prefix": [key]}
        )
        held: list[Message] = []

        async def hide(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] != HTTPStatus.NOT_FOUND:
                held.clear()
                await send(message)
                return
            if message["type"] == "http.response.start":
                held.append(message)
                return
            if not held:
                await send(message)
                return
            held.append(message)
            if message.get("more_body", False):
                return
            body = b"".join(one.get("body", b"") for one in held)
            reason = await asyncio.to_thread(self._judge.reason_against, caller.key.principal, listing, caller.region)
            if reason is None or b"NoSuchBucket" in body:
                for one in held:
                    await send(one)
            else:
                await _send_denial(reason, call.operation == "HeadObject", send)

        return hide

    async def _check_rights(self, caller: Caller, scope: Scope, query: str, body: bytes) -> Call | None:
        """Check the caller's permissions for a request and return the call; None if no permissions limit the caller.

        Raises:
            NotSignedRight: the caller is a role without a right that the request needs, or may not assume a role.
        """
        service = caller.service
        if not (service == "sts" or caller.key.principal.startswith(SESSIONS)):
            return None
        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1").partition("?")[0]
        call = read_call(service, caller.region, scope["method"], path, query, Headers(scope=scope), body)
        try:
            await asyncio.to_thread(self._judge.check, caller.key.principal, call)
        except DeniedError as denial:
            raise NotSignedRight(DENIED, str(denial), service) from denial
        return call


async def _send_denial(reason: str, head: bool, send: Send) -> None:  # noqa: FBT001 - two callers' kinds of request
    answer = _s3_error(DENIED.s3, reason, HTTPStatus.FORBIDDEN)
    body = b"" if head else answer.body
    headers = [(name, value) for name, value in answer.raw_headers if not (head and name == b"content-length")]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True, kw_only=True)
class BodyLimit:
    """The size in bytes of the largest request body that a service accepts, and the error for a larger body."""

    bytes: int
    code: Code
    message: str


MIB: Final = 1024 * 1024
TOO_LARGE: Final = Code(
    query="RequestEntityTooLarge", json="RequestEntityTooLargeException", s3="EntityTooLarge", status=413
)
S3_TOO_LARGE: Final = Code(query="EntityTooLarge", json="EntityTooLarge", s3="EntityTooLarge", status=400)
LAMBDA_TOO_LARGE: Final = Code(
    query="RequestTooLargeException", json="RequestTooLargeException", s3="RequestTooLargeException", status=413
)
# SageMaker's answer to a call that is too long has no error type, only a status.
SAGEMAKER_TOO_LARGE: Final = Code(query="", json="", s3="", status=413)
# AWS: "Common errors" (ServiceUnavailable, 503); S3's list of error codes (SlowDown, 503).
BUSY: Final = Code(query="ServiceUnavailable", json="ServiceUnavailable", s3="SlowDown", status=503)
# InvokeEndpoint and Lambda's Invoke take 6 MB; Lambda's CreateFunction 50 MB in base64. S3 takes 5 GiB in one request,
# but moto holds each body in memory, so larger objects have to come in parts.
INVOCATION_BYTES: Final = 6_291_456
CODE_BYTES: Final = 70_167_211
S3_BYTES: Final = 128 * MIB
OTHER_BYTES: Final = 8 * MIB
INVOCATIONS: Final = "/invocations"


def body_limit(service: str, path: str) -> BodyLimit:
    """Return the size limit for the body of a request, by the service's signing name and the path."""
    if service == "s3":
        message = (
            f"Your proposed upload exceeds the maximum allowed size. This emulation takes {S3_BYTES} bytes in one "
            "request; fix: upload in parts, as boto3's upload_file and `aws s3 cp` do"
        )
        return BodyLimit(bytes=S3_BYTES, code=S3_TOO_LARGE, message=message)
    if service == "sagemaker" and path.rstrip("/").endswith(INVOCATIONS):
        message = f"HTTP content length exceeded {INVOCATION_BYTES} bytes."
        return BodyLimit(bytes=INVOCATION_BYTES, code=SAGEMAKER_TOO_LARGE, message=message)
    if service == "lambda" and path.rstrip("/").endswith(INVOCATIONS):
        message = f"Request must be smaller than {INVOCATION_BYTES} bytes for the InvokeFunction operation"
        return BodyLimit(bytes=INVOCATION_BYTES, code=LAMBDA_TOO_LARGE, message=message)
    if service == "lambda":
        message = f"Request must be smaller than {CODE_BYTES} bytes for the {service} operation"
        return BodyLimit(bytes=CODE_BYTES, code=LAMBDA_TOO_LARGE, message=message)
    message = f"A request to {service} has {OTHER_BYTES} bytes at most."
    return BodyLimit(bytes=OTHER_BYTES, code=TOO_LARGE, message=message)


async def read_body(receive: Receive) -> bytes:
    """Return the whole body of a request."""
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            break
    return b"".join(chunks)


def replay(body: bytes) -> Receive:
    """Return an ASGI `receive` that delivers `body`, which was read already, as the whole body of a request."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def single_headers(send: Send) -> Send:
    """Wrap an ASGI `send` so that each answer has exactly one Date header and one Server header."""

    async def clean(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message["headers"] if name.lower() not in SINGLE_HEADERS]
            date = formatdate(usegmt=True).encode()
            message = {**message, "headers": [*kept, (b"date", date), (b"server", SERVER_NAME)]}
        await send(message)

    return clean
