"""The corrections between callers and moto."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from local_aws.gateway import CredentialScope
from local_aws.moto_services import MotoServices, knows, without_conditional_denies

TLS_ONLY = {"Effect": "Deny", "Condition": {"Bool": {"aws:SecureTransport": "false"}}, "Action": "*", "Resource": "*"}
ALLOW = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}


class Recorder:
    """Stands for moto: remembers requests and answers 200."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes, dict[str, str]]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Note the request."""
        request = Request(scope, receive)
        self.requests.append((request.method, request.url.path, await request.body(), dict(request.headers)))
        await PlainTextResponse("moto's answer")(scope, receive, send)


def ask(
    app: MotoServices,
    service: str | None,
    *,
    method: str = "POST",
    path: str = "/",
    query: bytes = b"",
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes]:
    """Send one request, and return status and body."""
    sent: list[Any] = []
    chunks = [body[:3], body[3:]]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "server": ("127.0.0.1", 80),
        "scheme": "http",
        "headers": [(key.lower().encode(), value.encode()) for key, value in (headers or {}).items()],
        "aws_scope": None if service is None else CredentialScope(service, "us-east-1"),
    }
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_chunked_body_arrives_whole_with_its_length() -> None:
    """A chunked body reaches moto as a body with a length."""
    moto = Recorder()
    ask(
        MotoServices(moto),
        "s3",
        method="PUT",
        path="/b/k",
        body=b"0123456789",
        headers={"Transfer-Encoding": "chunked"},
    )
    method, path, body, headers = moto.requests[0]
    assert (method, path, body) == ("PUT", "/b/k", b"0123456789")
    assert headers["content-length"] == "10"
    assert "transfer-encoding" not in headers


def test_unknown_service_is_refused_by_name() -> None:
    """A service that the emulator lacks is rejected in AWS's form, without moto."""
    moto = Recorder()
    status, body = ask(MotoServices(moto), "pricing", headers={"X-Amz-Target": "AWSPriceListService.GetProducts"})
    assert status == 400
    assert "pricing" in json.loads(body)["message"]
    assert moto.requests == []


def test_known_services_by_signing_name() -> None:
    """Signing names differ from moto's own: monitoring is cloudwatch, ecr has an api. host."""
    assert all(knows(name, "us-east-1") for name in ("s3", "iam", "monitoring", "ecr", "application-autoscaling"))
    assert not knows("pricing", "us-east-1")


def test_lookup_events_is_empty() -> None:
    """CloudTrail's LookupEvents returns no event, which the cdk CLI requests after a failed deploy."""
    target = {"X-Amz-Target": "com.amazonaws.cloudtrail.v20131101.CloudTrail_20131101.LookupEvents"}
    assert ask(MotoServices(Recorder()), "cloudtrail", headers=target) == (200, b'{"Events": []}')


def test_role_of_another_account_is_refused() -> None:
    """A role of another account is rejected with both accounts."""
    moto = Recorder()
    form = b"Action=AssumeRole&RoleArn=arn%3Aaws%3Aiam%3A%3A999999999999%3Arole%2Fx"
    status, body = ask(MotoServices(moto), "sts", body=form)
    assert status == 403
    assert b"999999999999" in body
    assert b"123456789012" in body
    assert ask(MotoServices(moto), "sts", body=form.replace(b"999999999999", b"123456789012"))[0] == 200


def test_conditional_deny_is_kept_from_moto_and_read_back_whole() -> None:
    """A policy that requires TLS is stored without effect in moto, and reads back unchanged."""
    moto = Recorder()
    app = MotoServices(moto)
    policy = json.dumps({"Version": "2012-10-17", "Statement": [TLS_ONLY, ALLOW]}).encode()
    assert ask(app, "s3", method="PUT", path="/bucket", query=b"policy", body=policy)[0] == 200
    assert json.loads(moto.requests[0][2])["Statement"] == [ALLOW]
    assert ask(app, "s3", method="GET", path="/bucket", query=b"policy")[1] == policy
    ask(app, "s3", method="DELETE", path="/bucket", query=b"policy")
    assert ask(app, "s3", method="GET", path="/bucket", query=b"policy")[1] == b"moto's answer"


def test_policy_that_is_refused_is_not_remembered() -> None:
    """A policy that moto refuses leaves nothing behind."""
    app = MotoServices(Response("no such bucket", 404))
    assert ask(app, "s3", method="PUT", path="/bucket", query=b"policy", body=b"{}")[0] == 404
    assert ask(app, "s3", method="GET", path="/bucket", query=b"policy") == (404, b"no such bucket")


def test_text_that_is_no_policy_passes_unchanged() -> None:
    """A policy that is not JSON is left for moto to reject; a single statement need not be a list."""
    assert without_conditional_denies(b"no json") == b"no json"
    assert json.loads(without_conditional_denies(json.dumps({"Statement": TLS_ONLY}).encode())) == {"Statement": []}
