"""The front door: reading signatures, errors in AWS's forms, clean headers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from local_aws.gateway import CredentialScope, Gateway, aws_error, credential_scope, foreign_caller

HEADER = "AWS4-HMAC-SHA256 Credential=KEY/20260101/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=abc"


@pytest.mark.parametrize(
    ("headers", "query", "expected"),
    [
        ({"authorization": HEADER}, b"", CredentialScope("s3", "eu-west-1")),
        (
            {},
            b"X-Amz-Credential=KEY%2F20260101%2Fus-east-1%2Flambda%2Faws4_request",
            CredentialScope("lambda", "us-east-1"),
        ),
        (
            {"authorization": "AWS4-ECDSA-P256-SHA256 Credential=KEY/20260101/s3/aws4_request, Signature=a"},
            b"",
            CredentialScope("s3", None),
        ),
        ({}, b"x=1", None),
        ({"authorization": "Basic abc"}, b"", None),
        ({"authorization": "AWS4-HMAC-SHA256 Credential=broken"}, b"", None),
    ],
)
def test_service_comes_from_the_signature(
    headers: dict[str, str], query: bytes, expected: CredentialScope | None
) -> None:
    """Header, presigned query and V4a are read; an unsigned or broken signature names no service."""
    assert credential_scope(headers, query) == expected


def test_error_speaks_the_callers_protocol() -> None:
    """A JSON client gets JSON, any other XML, each with the code where its SDK looks for it."""
    as_json = aws_error({"x-amz-target": "AWSPriceListService.GetProducts"}, code="Nope", message="no <service>")
    assert json.loads(bytes(as_json.body)) == {"__type": "Nope", "message": "no <service>"}
    as_xml = aws_error({}, code="Nope", message="no <service>")
    assert b"<Code>Nope</Code><Message>no &lt;service&gt;</Message>" in bytes(as_xml.body)


def call(app: Any, headers: list[tuple[bytes, bytes]]) -> list[dict[str, Any]]:
    """The messages that an app sends for one request."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:4566"), *headers],
    }
    asyncio.run(app(scope, receive, send))
    return sent


def test_request_goes_to_its_service_and_everything_else_to_the_others() -> None:
    """A signed request reaches the app of its service; other services and unsigned requests share one."""
    gateway = Gateway(services={"s3": PlainTextResponse("ours")}, pages={}, others=PlainTextResponse("others"))
    assert call(gateway, [(b"authorization", HEADER.encode())])[1]["body"] == b"ours"
    assert call(gateway, [])[1]["body"] == b"others"
    assert call(gateway, [(b"authorization", HEADER.replace("/s3/", "/iam/").encode())])[1]["body"] == b"others"


def test_page_is_reached_by_its_path_without_a_signature() -> None:
    """What the emulation tells of itself needs no credentials, and a signed request is never taken for it."""
    gateway = Gateway(services={}, pages={"/": PlainTextResponse("page")}, others=PlainTextResponse("others"))
    assert call(gateway, [])[1]["body"] == b"page"
    assert call(gateway, [(b"authorization", HEADER.encode())])[1]["body"] == b"others"


def test_answer_has_one_date_and_one_server_header() -> None:
    """Doubled Date headers end the cdk CLI with "Invalid time value", so whatever a service wrote becomes one."""
    answer = PlainTextResponse("x", headers={"Date": "yesterday", "Server": "Werkzeug"})
    answer.raw_headers.append((b"date", b"tomorrow"))
    names = [name.lower() for name, _ in call(Gateway(services={}, pages={}, others=answer), [])[0]["headers"]]
    assert names.count(b"date") == 1
    assert names.count(b"server") == 1


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"host": "127.0.0.1:4566"}, True),
        ({"host": "localhost"}, True),
        ({"host": "bucket.localhost:4566"}, True),
        ({"host": "evil.example:4566"}, False),
        ({"host": "127.0.0.1.evil.example"}, False),
        ({"host": "127.0.0.1:4566", "origin": "https://evil.example"}, False),
    ],
)
def test_web_pages_are_no_callers(headers: dict[str, str], allowed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Who may call may run code here, so a browser's requests and rebound names are refused."""
    assert (foreign_caller(headers) is None) is allowed


def test_refusal_of_a_web_page_reaches_no_service() -> None:
    """The answer is 403, and the services are not asked."""
    sent = call(
        Gateway(services={}, pages={}, others=PlainTextResponse("asked")), [(b"origin", b"https://evil.example")]
    )
    assert sent[0]["status"] == 403
    assert b"asked" not in sent[1]["body"]
