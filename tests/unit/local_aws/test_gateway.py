"""The front door: who may call, errors in AWS's forms, clean headers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from cohost.deploy.local_aws import PAGES_SERVICE
from local_aws.gateway import CredentialScope, Gateway, ThisMachineOnly, aws_error, refusal
from local_aws.kit.access_keys import AccessKey, AccessKeys
from local_aws.rights.judge import Judge
from local_aws.signatures import MISMATCH, MISSING, UNKNOWN_KEY, NotSignedRight, Verifier
from local_aws.testing.signing import signed_headers

USER = AccessKey(key_id="AKIA0000000000000001", secret="s", principal="arn:user")
HOST = "127.0.0.1:4566"
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}


def test_error_speaks_the_callers_protocol() -> None:
    """A JSON client gets an error in JSON, and any other client in XML."""
    as_json = aws_error({"x-amz-target": "AWSPriceListService.GetProducts"}, code="Nope", message="no <service>")
    assert json.loads(bytes(as_json.body)) == {"__type": "Nope", "message": "no <service>"}
    as_xml = aws_error({}, code="Nope", message="no <service>")
    assert b"<Code>Nope</Code><Message>no &lt;service&gt;</Message>" in bytes(as_xml.body)


def scope_of(path: str = "/", query: bytes = b"", headers: dict[str, str] | None = None, method: str = "GET") -> Any:
    """Return a request as an ASGI server passes it."""
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": [
            (b"host", HOST.encode()),
            *((name.lower().encode(), value.encode()) for name, value in (headers or {}).items()),
        ],
    }


def call(app: Any, scope: Any) -> list[dict[str, Any]]:
    """Return the messages that an app sends for one request."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent


def gateway(**apps: Any) -> Gateway:
    """Return a front door that knows one access key."""
    parts = {"services": {}, "pages": {}, "others": PlainTextResponse("others"), **apps}
    return Gateway(verifier=Verifier(AccessKeys(USER), "cohost local env"), judge=Judge(lambda _: None), **parts)


def signed(service: str, path: str = "/") -> Any:
    """A request with the key's signature."""
    key = {"key_id": USER.key_id, "secret": USER.secret}
    return scope_of(path, headers=signed_headers(key, "GET", f"http://{HOST}{path}", service))


def test_request_goes_to_the_service_that_it_is_signed_for() -> None:
    """A request goes to the service in its signature: an emulated one, or moto for all others."""
    door, ours, other = gateway(services={"s3": PlainTextResponse("ours")}), signed("s3"), signed("iam")
    assert call(door, ours)[1]["body"] == b"ours"
    assert call(door, other)[1]["body"] == b"others"
    assert ours["aws_scope"] == CredentialScope("s3", "us-east-1")
    assert other["aws_key"].principal == "arn:user"


def test_page_is_reached_by_its_path_and_a_signature_for_pages() -> None:
    """The emulator's pages need a signature for pages."""
    door = gateway(pages={"/page": PlainTextResponse("page")})
    assert call(door, signed(PAGES_SERVICE, "/page"))[1]["body"] == b"page"
    assert call(door, signed(PAGES_SERVICE, "/moto-api/reset"))[1]["body"] == b"others"
    assert call(door, signed("s3", "/page"))[1]["body"] == b"others"
    assert call(door, scope_of("/page"))[0]["status"] == 403


def test_unsigned_request_reaches_no_service() -> None:
    """A request without a signature is rejected on every path, because callers of the emulator can run code."""
    door = gateway(services={"s3": PlainTextResponse("asked")}, others=PlainTextResponse("asked"))
    for path in ("/", "/bucket/key", "/_cohost/endpoints", "/moto-api/reset"):
        sent = call(door, scope_of(path, b"Action=CreateStack"))
        assert sent[0]["status"] == 403
        assert b"asked" not in sent[1]["body"]


@pytest.mark.parametrize(
    ("service", "headers", "query", "form"),
    [
        ("s3", JSON, b"", b"<Error><Code>InvalidAccessKeyId</Code>"),
        ("s3", {}, b"list-type=2", b"<Error><Code>InvalidAccessKeyId</Code>"),
        ("sts", FORM, b"", b"<ErrorResponse><Error><Type>Sender</Type><Code>InvalidClientTokenId</Code>"),
        ("sts", {}, b"Action=GetCallerIdentity", b"<Type>Sender</Type><Code>InvalidClientTokenId</Code>"),
        ("sagemaker", JSON, b"", b'"__type": "UnrecognizedClientException"'),
        ("logs", {"x-amz-target": "Logs.X"}, b"", b'"__type": "UnrecognizedClientException"'),
        ("lambda", {}, b"", b'"message": "none"'),
    ],
)
def test_refusal_has_the_form_and_code_of_its_service(
    service: str, headers: dict[str, str], query: bytes, form: bytes
) -> None:
    """Each SDK parses a rejection as the error that its AWS service would return."""
    answer = refusal(NotSignedRight(UNKNOWN_KEY, "none", service), scope_of(query=query, headers=headers))
    assert (answer.status_code, form in bytes(answer.body)) == (403, True)


def test_refusal_names_its_code_in_the_header_that_rest_clients_read() -> None:
    """A rejection has its code in a header too, from which the SDK of Lambda reads it."""
    answer = refusal(NotSignedRight(MISMATCH, "none", "lambda"), scope_of())
    assert answer.headers["x-amzn-errortype"] == "InvalidSignatureException"
    assert b"AccessDenied" in bytes(refusal(NotSignedRight(MISSING, "none"), scope_of()).body)


def test_answer_has_one_date_and_one_server_header() -> None:
    """An answer has one Date and one Server header, because cdk fails on two."""
    answer = PlainTextResponse("x", headers={"Date": "yesterday", "Server": "Werkzeug"})
    answer.raw_headers.append((b"date", b"tomorrow"))
    for scope in (signed("iam"), scope_of()):
        names = [name.lower() for name, _ in call(gateway(others=answer), scope)[0]["headers"]]
        assert names.count(b"date") == 1
        assert names.count(b"server") == 1


def test_refusal_of_a_web_page_reaches_nothing() -> None:
    """The answer is 403, whatever is behind."""
    sent = call(ThisMachineOnly(PlainTextResponse("asked")), scope_of(headers={"sec-fetch-site": "cross-site"}))
    assert sent[0]["status"] == 403
    assert b"asked" not in sent[1]["body"]
    assert call(ThisMachineOnly(PlainTextResponse("asked")), scope_of())[1]["body"] == b"asked"
