"""The front door's check of signatures, on requests that botocore signed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from local_aws.kit.access_keys import AccessKey, AccessKeys
from local_aws.signatures import BODY_LIMIT_BYTES, Caller, NotSignedRight, Verifier
from local_aws.testing.signing import presigned, signed_headers

if TYPE_CHECKING:
    from collections.abc import Callable

USER = AccessKey(key_id="AKIA0000000000000001", secret="of the user", principal="arn:user")
ROLE = AccessKey(key_id="ASIA0000000000000001", secret="of a role", principal="arn:role", token="the token")
ENDED = replace(ROLE, key_id="ASIA0000000000000002", expires=datetime(2020, 1, 1, tzinfo=UTC))
KEY = {"key_id": USER.key_id, "secret": USER.secret}
DOOR = "http://127.0.0.1:4599"
FORM = {"content-type": "application/x-www-form-urlencoded"}


@dataclass
class Request:
    """A request to the front door; `read` counts the read bytes of its body."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes = b""
    read: int = field(default=0)

    @property
    def scope(self) -> Any:
        """Return the request as an ASGI server passes it."""
        parts = urlsplit(self.url)
        return {
            "type": "http",
            "method": self.method,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "headers": [
                (b"host", parts.netloc.encode()),
                *((name.lower().encode(), value.encode("latin-1")) for name, value in self.headers.items()),
            ],
        }

    async def receive(self) -> Any:
        """The next message: the whole body, then the end of the connection."""
        self.read += 1
        if self.read > 1:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self.body, "more_body": False}


def signed(
    method: str = "POST",
    path: str = "/",
    service: str = "iam",
    body: bytes = b"",
    key: AccessKey = USER,
    headers: dict[str, str] | None = None,
    **how: Any,
) -> Request:
    """A request signed now."""
    pair = {"key_id": key.key_id, "secret": key.secret}
    sent = signed_headers(pair, method, DOOR + path, service, body=body, headers=headers, token=key.token, **how)
    return Request(method, DOOR + path, sent, body)


def check(request: Request, later: timedelta = timedelta()) -> tuple[Caller, bytes]:
    """The caller that the front door sees, some time later, and the body that is passed on."""

    async def verified() -> tuple[Caller, bytes]:
        keys = AccessKeys(USER, {key.key_id: key for key in (ROLE, ENDED)}.get)
        verifier = Verifier(keys, "cohost local env", lambda: datetime.now(tz=UTC) + later)
        caller, receive = await verifier.verify(request.scope, request.receive)
        return caller, (await receive())["body"]

    return asyncio.run(verified())


def refused(request: Request, later: timedelta = timedelta()) -> NotSignedRight:
    """Check a request that is rejected, and return the error."""
    with pytest.raises(NotSignedRight) as verdict:
        check(request, later)
    return verdict.value


@pytest.mark.parametrize(
    ("path", "service"),
    [
        ("/", "sts"),
        ("/?Action=ListRoles&Version=2010-05-08", "iam"),
        ("/2015-03-31/functions/arn%3Aaws%3Alambda%3Af/invocations?Qualifier=%24LATEST", "lambda"),
        ("/endpoints/e//invocations/../invocations/", "sagemaker"),
        ("/bucket/in%20parts/%C3%BC%20%2B%252F~.bin", "s3"),
        ("/bucket//a/../b", "s3"),
        ("/bucket?list-type=2&prefix=a%2Fb%20c&delimiter=%2F&policy", "s3"),
        ("/bucket?x=b&x=a&X=1&empty=&tilde=~", "s3"),
    ],
)
def test_what_botocore_signs_is_let_in(path: str, service: str) -> None:
    """Paths are normalised for every service but S3, queries are sorted, and the caller is the key's principal."""
    caller, body = check(signed("PUT", path, service, b"the body"))
    assert (caller.key.principal, caller.service, caller.region) == ("arn:user", service, "us-east-1")
    assert body == b"the body"


def test_headers_count_as_they_are_signed() -> None:
    """Several spaces in a header count as one, and non-ASCII values as signed."""
    check(signed(headers={"x-amz-meta-a": "two  words ", "x-custom": "caf\xe9"}))


@pytest.mark.parametrize(
    "declared",
    [
        "UNSIGNED-PAYLOAD",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ],
)
def test_a_declared_hash_is_taken_without_reading_the_body(declared: str) -> None:
    """For any form of hash that an upload declares, the signature check reads no byte of the body."""
    request = signed("PUT", "/b/k", "s3", declared=declared)

    async def verified() -> None:
        await Verifier(AccessKeys(USER), "x").verify(request.scope, request.receive)

    asyncio.run(verified())
    assert request.read == 0


def test_s3_without_a_declared_hash_is_refused_unread() -> None:
    """An upload to S3 without a declared hash is rejected unread, because it would need to be kept in memory."""
    request = signed("PUT", "/b/k", "iam", b"x")
    request.headers["Authorization"] = request.headers["Authorization"].replace("/iam/", "/s3/")
    assert refused(request).code.s3 == "InvalidRequest"
    assert request.read == 0


def test_a_body_is_read_for_known_callers_only_and_only_so_far() -> None:
    """A body is read only for a known access key, and only up to the largest size of any service."""
    stranger = signed(body=b"x", key=replace(USER, key_id="AKIA0000000000000009"))
    assert refused(stranger).code.query == "InvalidClientTokenId"
    assert stranger.read == 0
    large = signed()
    large.body = bytes(BODY_LIMIT_BYTES + 1)
    assert refused(large).code.json == "RequestEntityTooLargeException"


def other_method(request: Request) -> None:
    """Send the request with another method."""
    request.method = "DELETE"


def other_query(request: Request) -> None:
    """Ask for something else."""
    request.url = request.url.replace("ListRoles", "DeleteRole")


def further_query(request: Request) -> None:
    """Add a parameter."""
    request.url += "&X=1"


def other_header(request: Request) -> None:
    """Change a signed header."""
    request.headers["X-Amz-Target"] = "Other.Action"


def other_body(request: Request) -> None:
    """Send another body."""
    request.body = b"Action=DeleteRole"


def other_host(request: Request) -> None:
    """Send the request to another port."""
    request.url = request.url.replace(":4599", ":4600")


def other_region(request: Request) -> None:
    """Claim to have signed for elsewhere."""
    request.headers["Authorization"] = request.headers["Authorization"].replace("us-east-1", "eu-west-1")


def one_digit(request: Request) -> None:
    """Guess a signature."""
    text = request.headers["Authorization"]
    request.headers["Authorization"] = text[:-1] + ("0" if text[-1] != "0" else "1")


def header_removed(request: Request) -> None:
    """Leave a signed header out."""
    del request.headers["X-Amz-Target"]


@pytest.mark.parametrize(
    "change",
    [
        other_method, other_query, further_query, other_header, other_body, other_host, other_region, one_digit,
        header_removed,
    ],
)  # fmt: skip
def test_whatever_is_changed_after_signing_is_refused(change: Callable[[Request], None]) -> None:
    """A request with any part changed after signing is rejected."""
    request = signed(path="/?Action=ListRoles", body=b"Action=ListRoles", headers={**FORM, "X-Amz-Target": "A.B"})
    check(replace(request, read=0))
    change(request)
    assert refused(request).code.query == "SignatureDoesNotMatch"


def test_a_header_of_aws_must_be_signed() -> None:
    """An action that is added to a signed request counts for nothing."""
    request = signed()
    request.headers["X-Amz-Target"] = "Other.Action"
    verdict = refused(request)
    assert (verdict.code.query, verdict.code.s3) == ("SignatureDoesNotMatch", "AccessDenied")
    assert "not signed: x-amz-target" in str(verdict)


def test_the_host_must_be_signed() -> None:
    """A signature without the host is rejected."""
    request = signed()
    request.headers["Authorization"] = request.headers["Authorization"].replace("SignedHeaders=host;", "SignedHeaders=")
    assert "host" in str(refused(request))


def test_a_wrong_secret_is_refused_with_the_way_to_the_right_one() -> None:
    """A wrong secret is rejected with the command that prints the right one."""
    for key in (replace(USER, secret="test"), replace(USER, key_id="test", secret="test")):
        assert 'eval "$(cohost local env)"' in str(refused(signed(key=key)))


def test_a_session_token_belongs_to_its_key() -> None:
    """A role's key needs its token, and a user's key has none."""
    assert check(signed(key=ROLE))[0].key.principal == "arn:role"
    for key in (replace(ROLE, token=None), replace(ROLE, token="of another"), replace(USER, token="the token")):
        assert refused(signed(key=key)).code.s3 == "InvalidToken"


def test_a_role_s_key_ends() -> None:
    """A key of AssumeRole is valid for its duration only."""
    assert refused(signed(key=ENDED)).code.query == "ExpiredToken"


@pytest.mark.parametrize("minutes", [-16, 16])
def test_a_stale_signature_is_refused(minutes: int) -> None:
    """A signature that is over a quarter of an hour old, or in the future, is rejected."""
    check(signed(), timedelta(minutes=minutes * 14 / 16))
    verdict = refused(signed(), timedelta(minutes=minutes))
    assert (verdict.code.query, verdict.code.s3) == ("RequestExpired", "RequestTimeTooSkewed")


def test_the_date_is_that_of_the_credential() -> None:
    """The signed time must be on the day of the credential."""
    request = signed()
    request.headers["X-Amz-Date"] = "20200101T000000Z"
    assert refused(request).code.query == "IncompleteSignature"


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_presigned_url_passes_until_it_expires(method: str) -> None:
    """A presigned URL is accepted until it expires, also with the token of a role."""
    url = f"{DOOR}/bucket/a%20key"
    request = Request(method, presigned(KEY, method, url, lasts=3600), {}, b"payload")
    assert check(replace(request), timedelta(minutes=59))[0].key.principal == "arn:user"
    assert refused(replace(request), timedelta(minutes=61)).code.query == "RequestExpired"
    role = {"key_id": ROLE.key_id, "secret": ROLE.secret}
    check(Request(method, presigned(role, method, url, token=ROLE.token), {}))
    assert refused(Request(method, presigned(role, method, url), {})).code.s3 == "InvalidToken"


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("X-Amz-Expires=60", "X-Amz-Expires=604800", "SignatureDoesNotMatch"),
        ("X-Amz-Expires=60", "X-Amz-Expires=604801", "IncompleteSignature"),
        ("X-Amz-Expires=60", "X-Amz-Expires=0", "IncompleteSignature"),
        ("X-Amz-Expires=60", "", "IncompleteSignature"),
        ("/k?", "/other?", "SignatureDoesNotMatch"),
        ("SHA256", "SHA1", "IncompleteSignature"),
        ("aws4_request", "aws5_request", "IncompleteSignature"),
        ("X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders=", "IncompleteSignature"),
    ],
)
def test_a_presigned_url_cannot_be_stretched(before: str, after: str, code: str) -> None:
    """Expiry, key and algorithm of a presigned URL are signed and cannot be changed."""
    url = presigned(KEY, "GET", f"{DOOR}/b/k")
    assert before in url
    assert refused(Request("GET", url.replace(before, after), {})).code.query == code


@pytest.mark.parametrize(
    ("authorization", "query", "about"),
    [
        ("AWS4-ECDSA-P256-SHA256 Credential=K/20260101/s3/aws4_request", "", "4a"),
        ("AWS key:signature", "", "'AWS'"),
        ("Basic abc", "", "'Basic'"),
        ("AWS4-HMAC-SHA256 Credential=broken", "", "incomplete"),
        ("AWS4-HMAC-SHA256 ", "", "incomplete"),
        ("", "?AWSAccessKeyId=a&Signature=b&Expires=1", "s3v4"),
        ("AWS4-HMAC-SHA256 x", "?X-Amz-Signature=1", "Only one auth mechanism"),
    ],
)
def test_other_signatures_are_refused_by_name(authorization: str, query: str, about: str) -> None:
    """Signatures of other kinds and broken ones are rejected with the reason."""
    headers = {"authorization": authorization} if authorization else {}
    verdict = refused(Request("GET", f"{DOOR}/{query}", headers))
    assert (verdict.code.query, about in str(verdict)) == ("IncompleteSignature", True)


def test_no_signature_is_missing() -> None:
    """A request with an action in its query and an unsigned credential is rejected."""
    assert refused(Request("GET", f"{DOOR}/?Action=CreateStack", {})).code.query == "MissingAuthenticationToken"
    attack = f"{DOOR}/?Action=CreateStack&X-Amz-Credential=x/20260101/us-east-1/cloudformation/aws4_request"
    assert refused(Request("GET", attack, {})).code.query == "MissingAuthenticationToken"
