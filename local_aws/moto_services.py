"""The services that moto emulates; moto's public WSGI application runs in this process.

The module `moto_services` corrects three differences between moto and AWS, because each would make a deploy fail:
- moto applies a bucket policy's Deny statement without its Condition, so a TLS-only policy denies all access;
- a service that moto does not know gets an error in AWS's own form instead of a crash;
- CloudTrail's LookupEvents, which the cdk CLI calls after a failed deploy, returns no events.

Large S3 objects are sent in pieces (`local_aws.large_objects`). To join the parts of an upload, or to copy an object,
moto holds the whole object in memory, so the emulator answers only one of these requests at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import uuid
from datetime import UTC
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

from botocore.exceptions import BotoCoreError, ClientError
from starlette.datastructures import Headers
from starlette.responses import Response

from local_aws.gateway import aws_error, read_body, replay
from local_aws.kit.access_keys import AccessKey
from local_aws.kit.account import ACCOUNT_ID, PARTITION
from local_aws.kit.errors import not_emulated
from local_aws.large_objects import download, large_object
from local_aws.rights.encryption import ObjectKey
from local_aws.rights.judge import RolePolicies

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from local_aws.gateway import CredentialScope
    from local_aws.kit.clients import Clients

WORKERS: Final = 16
LOOKUP_EVENTS: Final = "LookupEvents"


def moto_app(*, managed_policies: bool) -> ASGIApp:
    """Return moto's whole server as an ASGI app. moto is imported only here, since its import takes almost a second."""
    # moto loads AWS's own managed policies only with this setting.
    os.environ["MOTO_IAM_LOAD_MANAGED_POLICIES"] = str(managed_policies).lower()
    # Web pages may not call the emulator (see the gateway), so moto's CORS headers must not allow it.
    os.environ["MOTO_DISABLE_GLOBAL_CORS"] = "true"
    from a2wsgi import WSGIMiddleware

    wsgi = _dispatcher()

    def with_raw_path(environ: Any, start_response: Any) -> Any:
        # moto reads S3 keys from the path as it was sent: `%2F` in a key is not a slash.
        environ["RAW_URI"] = environ["asgi.scope"].get("raw_path", b"").decode("latin-1")
        return wsgi(environ, start_response)

    # a2wsgi's types are narrower than ASGI's.
    return cast("ASGIApp", WSGIMiddleware(with_raw_path, workers=WORKERS))


@cache
def _dispatcher() -> Any:
    """Return moto's WSGI app for all services; it is made only once, since moto's state is global."""
    from moto import server

    moto: Any = server  # moto does not mark its documented names as exports
    return moto.DomainDispatcherApplication(moto.create_backend_app)


def warm_up(clients: Clients) -> None:
    """Call each service whose first call is slow, such as IAM, which takes 2 s to read its managed policies."""
    # The server may have ended before the services answer.
    with contextlib.suppress(BotoCoreError, ClientError):
        clients.get("iam").list_roles(MaxItems=1)
        clients.get("ssm").describe_parameters(MaxResults=1)


def issued_key(key_id: str) -> AccessKey | None:
    """Return the access key with this id that IAM's CreateAccessKey or STS issued; None if it is missing or inactive.

    The keys are stored in moto: a key disappears with its user, by DeleteAccessKey, and when moto is reset.
    """
    from moto.backends import get_backend  # imported late, because moto takes seconds to load

    iam: Any = get_backend("iam")[ACCOUNT_ID][PARTITION]
    kept = iam.access_keys.get(key_id)
    if kept is None or kept.status != "Active":
        return None
    if kept.user_name is not None:
        user = iam.users.get(kept.user_name)
        arn = None if user is None else user.arn
        return None if arn is None else AccessKey(key_id=key_id, secret=kept.secret_access_key, principal=arn)
    sts: Any = get_backend("sts")[ACCOUNT_ID][PARTITION]
    role = sts.get_assumed_role_from_access_key(key_id)
    if role is None:
        return None
    return AccessKey(
        key_id=key_id,
        secret=role.secret_access_key,
        principal=role.arn,
        token=role.session_token,
        expires=role.expiration.replace(tzinfo=UTC),
    )


def role_policies(arn: str) -> RolePolicies | None:
    """Return the policies of a role, by the role's ARN or the ARN of its session; None if there is no such role."""
    from moto.backends import get_backend  # imported late, because moto takes seconds to load

    iam: Any = get_backend("iam")[ACCOUNT_ID][PARTITION]
    name, session = arn.split("/")[1 if ":assumed-role/" in arn else -1], None
    role = next((one for one in iam.roles.values() if one.name == name), None)
    if role is None:
        return None
    if ":assumed-role/" in arn:
        sts: Any = get_backend("sts")[ACCOUNT_ID][PARTITION]
        session = next((one.policy for one in sts.assumed_roles if one.arn == arn and one.policy), None)
    boundary = iam.managed_policies.get(role.permissions_boundary_arn) if role.permissions_boundary_arn else None
    limits = [*([] if boundary is None else [_in_force(boundary)]), *([] if session is None else [session])]
    managed = map(_in_force, role.managed_policies.values())
    return RolePolicies(
        arn=role.arn,
        trust=_document(role.assume_role_policy_document),
        identity=list(map(_document, (*role.policies.values(), *managed))),
        limits=list(map(_document, limits)),
    )


def _in_force(managed: Any) -> Any:
    return next(one.document for one in managed.versions if one.version_id == managed.default_version_id)


def _document(policy: object) -> Mapping[str, Any]:
    document = json.loads(unquote(policy)) if isinstance(policy, str) else policy
    return document if isinstance(document, dict) else {}


def key_of_object(region: str, bucket: str, name: str) -> ObjectKey | None:
    """Return the customer's KMS key of an object; None for a key that S3 or AWS manages, or for a missing object."""
    from moto.backends import get_backend  # moto loads late

    s3: Any = get_backend("s3")[ACCOUNT_ID][PARTITION]
    holder = s3.buckets.get(bucket)
    found: Any = None if holder is None else holder.keys.get(name)
    if not str(getattr(found, "encryption", None) or "").startswith("aws:kms"):  # a deleted object has only a marker
        return None
    return _customer_key(region, found.kms_key_id, by_bucket=_is_true(found.bucket_key_enabled))


def key_of_bucket(region: str, bucket: str, stated: str) -> ObjectKey | None:
    """Return the customer's KMS key for a new object: the key that the request states, or the bucket's default key."""
    from moto.backends import get_backend  # moto loads late

    s3: Any = get_backend("s3")[ACCOUNT_ID][PARTITION]
    holder = s3.buckets.get(bucket)
    rule = (holder.encryption or {}).get("Rule", {}) if holder is not None else {}
    by_default = rule.get("ApplyServerSideEncryptionByDefault", {})
    key_id = stated or by_default.get("KMSMasterKeyID")
    return _customer_key(region, key_id, by_bucket=_is_true(rule.get("BucketKeyEnabled")))


def _is_true(setting: object) -> bool:
    return str(setting).lower() == "true"  # moto keeps what the request had, a boolean or a text


def _customer_key(region: str, key_id: str | None, *, by_bucket: bool) -> ObjectKey | None:
    """Return a customer's KMS key by its id, alias or ARN; None for a key that AWS manages."""
    from moto.backends import get_backend  # moto loads late

    if not key_id or "alias/aws/" in key_id:
        return None
    if ":key/" not in key_id:
        kms: Any = get_backend("kms")[ACCOUNT_ID][region]
        key_id = f"arn:{PARTITION}:kms:{region}:{ACCOUNT_ID}:key/{kms.any_id_to_key_id(key_id)}"
    return ObjectKey(arn=key_id, by_bucket=by_bucket)


def knows(service: str, region: str) -> bool:
    """Return True if moto emulates the service with this signing name."""
    # imported late, because moto takes seconds to load
    from moto.backends import get_service_from_url, list_of_moto_modules

    hosts = (f"{service}.{region}", f"api.{service}.{region}", service)
    return service in list_of_moto_modules() or any(
        get_service_from_url(f"https://{host}.amazonaws.com") is not None for host in hosts
    )


class MotoServices:
    """The ASGI app for services that moto emulates, and for services that the emulator does not have at all.

    Args:
        moto: moto as an ASGI app, see `moto_app`.
    """

    def __init__(self, moto: ASGIApp) -> None:
        self._moto = moto
        self._policies: dict[str, bytes] = {}
        self._known: dict[str, bool] = {}
        self._alone = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; moto answers it, except in the cases that the module's docstring lists."""
        headers = Headers(scope=scope)
        body = await read_body(receive)
        signed: CredentialScope | None = scope.get("aws_scope")
        refusal = self._refusal(headers, signed)
        if refusal is None and signed is not None and signed.service == "sts":
            refusal = _sts(scope, headers, body)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        bucket = _policy_bucket(scope, signed)
        if bucket is not None:
            await self._bucket_policy(bucket, scope, body, send)
            return
        if signed is not None and signed.service == "s3" and (stored := large_object(scope)) is not None:
            head = await capture(self._moto, _head_of(scope), b"")
            if head.status_code == HTTPStatus.OK:
                await download(stored, head, headers.get("range"))(scope, receive, send)
                return
        async with self._alone if _assembles(scope, headers) else contextlib.nullcontext():
            await self._moto(_with_length(scope, body), replay(body), send)

    def _refusal(self, headers: Headers, signed: CredentialScope | None) -> Response | None:
        if signed is None:
            return None
        if signed.service == "cloudtrail" and headers.get("x-amz-target", "").endswith(LOOKUP_EVENTS):
            return Response(json.dumps({"Events": []}), media_type="application/x-amz-json-1.1")
        if not self._is_known(signed):
            message = not_emulated(f"service {signed.service}", "AWS", fix="run this against a real account")
            return aws_error(headers, code="ServiceUnavailableInLocalAws", message=message)
        return None

    def _is_known(self, signed: CredentialScope) -> bool:
        if signed.service not in self._known:
            self._known[signed.service] = knows(signed.service, signed.region or "us-east-1")
        return self._known[signed.service]

    async def _bucket_policy(self, bucket: str, scope: Scope, body: bytes, send: Send) -> None:
        """Answer PUT, GET and DELETE of a bucket policy; keep its full text, and pass to moto what moto supports."""
        method = scope["method"]
        forwarded = without_conditional_denies(body) if method == "PUT" else body
        answer = await capture(self._moto, _with_length(scope, forwarded), forwarded)
        if answer.status_code < 300:  # noqa: PLR2004 - HTTP success
            if method == "PUT":
                self._policies[bucket] = body
            elif method == "DELETE":
                self._policies.pop(bucket, None)
            elif bucket in self._policies:
                answer = Response(self._policies[bucket], media_type="application/json")
        await answer(scope, replay(b""), send)


def without_conditional_denies(policy: bytes) -> bytes:
    """Return a policy without the Deny statements that have a Condition; return a text that is not JSON unchanged."""
    with contextlib.suppress(ValueError, AttributeError):
        document: dict[str, Any] = json.loads(policy)
        statements = document.get("Statement", [])
        statements = statements if isinstance(statements, list) else [statements]
        kept = [s for s in statements if not (s.get("Effect") == "Deny" and s.get("Condition"))]
        return json.dumps({**document, "Statement": kept}).encode()
    return policy


def _policy_bucket(scope: Scope, signed: CredentialScope | None) -> str | None:
    """Return the bucket if a request reads or changes a bucket policy; otherwise None."""
    if signed is None or signed.service != "s3":
        return None
    if "policy" not in parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        return None
    return str(scope["path"]).strip("/")


def _sts(scope: Scope, headers: Mapping[str, str], body: bytes) -> Response | None:
    """Return the answer to an STS request that moto would answer wrongly; None for requests that moto can answer.

    In moto, GetCallerIdentity knows only keys that moto issued. AssumeRole with a role of another account would create
    an empty second account. GetSessionToken and GetFederationToken always return the same key, which is publicly known.
    """
    form = parse_qs(body.decode("latin-1") or scope["query_string"].decode("latin-1"))
    action, key = form.get("Action", [""])[0], scope.get("aws_key")
    if action == "GetCallerIdentity" and key is not None and key.user_id is not None:
        return _caller_identity(key)
    if action in {"GetSessionToken", "GetFederationToken"}:
        fix = "use the keys that you have, or a role's"
        message = not_emulated(f"action {action}", "STS", allowed="AssumeRole", fix=fix)
        return aws_error(headers, code="ServiceUnavailableInLocalAws", message=message)
    arn = unquote(form.get("RoleArn", [""])[0])
    account = arn.split(":")[4] if arn.count(":") >= 5 else ACCOUNT_ID  # noqa: PLR2004 - arn:partition:iam::ACCOUNT:…
    if account == ACCOUNT_ID:
        return None
    message = f"RoleArn: {arn} is of account {account}; allowed: {ACCOUNT_ID}; fix: deploy to that account"
    return aws_error(headers, code="AccessDenied", message=message, status=403)


def _caller_identity(key: AccessKey) -> Response:
    """Return the answer to GetCallerIdentity for a key that moto did not issue."""
    members = (("UserId", key.user_id), ("Account", ACCOUNT_ID), ("Arn", key.principal))
    result = "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in members)
    xml = (
        '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
        f"{result}</GetCallerIdentityResult><ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId>"
        "</ResponseMetadata></GetCallerIdentityResponse>"
    )
    return Response(xml, media_type="text/xml")


def _assembles(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Return True if moto builds the request's whole object in memory; such requests run one at a time."""
    return "x-amz-copy-source" in headers or (scope["method"] == "POST" and b"uploadId=" in scope["query_string"])


def _head_of(scope: Scope) -> Scope:
    """Return the scope of a HEAD request for the whole object that a GET request names."""
    headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"range"]
    return _with_length({**scope, "method": "HEAD", "headers": headers}, b"")


def _with_length(scope: Scope, body: bytes) -> Scope:
    """Return a request's scope with a Content-Length, since WSGI cannot read the chunked bodies of SDKs' uploads."""
    dropped = (b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in scope["headers"] if name.lower() not in dropped]
    return {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}


async def capture(app: ASGIApp, scope: Scope, body: bytes) -> Response:
    """Run `app` on one request, and return its answer instead of sending the answer."""
    chunks: list[bytes] = []
    start: dict[str, Any] = {"status": 500, "headers": []}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
        elif message["type"] == "http.response.body":
            chunks.append(message.get("body", b""))

    await app(scope, replay(body), send)
    response = Response(b"".join(chunks), start["status"])
    kept = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
    response.raw_headers = [*kept, (b"content-length", str(len(response.body)).encode())]
    return response
