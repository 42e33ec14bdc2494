"""Verify requests' signatures of AWS's Signature Version 4, in the Authorization header or a presigned query.

Source: IAM user guide, "Create a signed AWS API request", and S3's API reference, "Authenticating Requests".

The signature covers method, path, query, headers and the body's hash. A caller of S3 must declare this hash in
`x-amz-content-sha256`: a hash, UNSIGNED-PAYLOAD, or one of the STREAMING-… forms. The signature covers this declared
text, so a signature can be verified without reading the upload. Callers of other services usually declare no hash;
their bodies are small, and are read after all other checks. A body is not compared with the declared hash, and the
chunk signatures of a streamed body are not checked, because only the owner of the secret can have declared the hash.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote, unquote

from botocore.utils import normalize_url_path

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import Scope

    from local_aws.kit.access_keys import AccessKey, AccessKeys

ALGORITHM: Final = "AWS4-HMAC-SHA256"
TERMINATOR: Final = "aws4_request"
SCOPE_PARTS: Final = 5  # KEY/DATE/REGION/SERVICE/aws4_request
DECLARED_HASH: Final = "x-amz-content-sha256"
TOKEN: Final = "x-amz-security-token"  # noqa: S105 - a header's name
# The time that AWS allows between a signature's date and the request's arrival ("Common errors": RequestExpired).
SKEW: Final = timedelta(minutes=15)
LONGEST_PRESIGNED_S: Final = 604_800


@dataclass(frozen=True, kw_only=True)
class Code:
    """The codes of one error in the query protocol, in the JSON protocols and in S3, and its HTTP status."""

    query: str
    json: str
    s3: str
    status: int = 403


MISSING: Final = Code(query="MissingAuthenticationToken", json="MissingAuthenticationTokenException", s3="AccessDenied")
INCOMPLETE: Final = Code(
    query="IncompleteSignature", json="IncompleteSignatureException", s3="AuthorizationHeaderMalformed", status=400
)
UNKNOWN_KEY: Final = Code(query="InvalidClientTokenId", json="UnrecognizedClientException", s3="InvalidAccessKeyId")
WRONG_TOKEN: Final = Code(query="InvalidClientTokenId", json="UnrecognizedClientException", s3="InvalidToken")
EXPIRED_TOKEN: Final = Code(query="ExpiredToken", json="ExpiredTokenException", s3="ExpiredToken")
MISMATCH: Final = Code(query="SignatureDoesNotMatch", json="InvalidSignatureException", s3="SignatureDoesNotMatch")
NOT_SIGNED: Final = Code(query="SignatureDoesNotMatch", json="InvalidSignatureException", s3="AccessDenied")
STALE: Final = Code(query="RequestExpired", json="RequestExpired", s3="RequestTimeTooSkewed")
URL_EXPIRED: Final = Code(query="RequestExpired", json="RequestExpired", s3="AccessDenied")
NO_HASH: Final = Code(query="InvalidRequest", json="InvalidRequest", s3="InvalidRequest", status=400)


class NotSignedRight(Exception):  # noqa: N818 - the request is wrong, not this program
    """The error for a request that the gateway refuses: an invalid signature, or a caller without permission.

    Args:
        code: the error's codes and HTTP status.
        message: the error's text for the caller.
        service: the service's signing name in the request's credential scope; None if it could not be read.
    """

    def __init__(self, code: Code, message: str, service: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.service = service


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The parts of a signature that a request contains.

    `time` is the time of signing in the form `YYYYMMDDThhmmssZ`. `lasts` is the validity period of a presigned query,
    or None for a signature in the Authorization header.
    """

    key_id: str
    date: str
    region: str
    service: str
    headers: tuple[str, ...]
    value: str
    time: str
    token: str
    lasts: timedelta | None


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The signer of a request: the access key, and the service and region that the request was signed for."""

    key: AccessKey
    service: str
    region: str


class Verifier:
    """Checks that each request was signed with the secret of a known access key.

    Args:
        keys: the table of known access keys.
        renewal: the command that prints the current keys for a shell; error texts name it.
        now: returns the current time; None for the machine's clock.
    """

    def __init__(self, keys: AccessKeys, renewal: str, now: Callable[[], datetime] | None = None) -> None:
        self._keys = keys
        self._now = now or (lambda: datetime.now(tz=UTC))
        self._hint = f'The keys of this AWS are told by: eval "$({renewal})" (and `unset AWS_PROFILE` for cdk)'

    async def verify(self, scope: Scope, read_body: Callable[[str], Awaitable[bytes]]) -> tuple[Caller, bytes | None]:
        """Verify a request's signature; return its caller, and its body if the check had to read the body.

        Args:
            scope: the request's ASGI scope.
            read_body: reads the body of a request to the service with this signing name.

        Raises:
            NotSignedRight: the request is not signed, or not with the secret of a known key, or its signature expired;
                or `read_body` refuses the body.
        """
        headers = _by_name(scope)
        signature = self._read(headers, scope["query_string"])
        try:
            key = self._key(signature)
            self._check_time(signature)
            _check_headers(signature, headers)
            declared, body = _declared(signature, headers), None
            if declared is None:
                body = await read_body(signature.service)
                declared = hashlib.sha256(body).hexdigest()
            self._check_value(signature, key, _canonical_request(scope, signature, headers, declared))
        except NotSignedRight as verdict:
            verdict.service = signature.service
            raise
        return Caller(key=key, service=signature.service, region=signature.region), body

    def _read(self, headers: Mapping[str, list[str]], query_string: bytes) -> Signature:
        query = parse_qs(query_string.decode("latin-1"), keep_blank_values=True)
        authorization = headers.get("authorization")
        if authorization is not None and "X-Amz-Signature" in query:
            raise NotSignedRight(INCOMPLETE, "Only one auth mechanism allowed: a header or a presigned query.")
        if authorization is not None:
            return _from_header(authorization[0], headers)
        if "X-Amz-Algorithm" in query or "X-Amz-Signature" in query:
            return _from_query({name: values[0] for name, values in query.items()})
        if "AWSAccessKeyId" in query:
            raise NotSignedRight(INCOMPLETE, _ONLY_V4.format("Signature Version 2"), "s3")
        raise NotSignedRight(MISSING, f"Request is missing Authentication Token. {self._hint}")

    def _key(self, signature: Signature) -> AccessKey:
        key = self._keys.find(signature.key_id)
        if key is None:
            raise NotSignedRight(
                UNKNOWN_KEY,
                f"The access key {signature.key_id!r} is none of this AWS, perhaps of an earlier one. {self._hint}",
            )
        if not hmac.compare_digest((key.token or "").encode(), signature.token.encode()):
            raise NotSignedRight(
                WRONG_TOKEN, f"The security token in the request is not that of its access key. {self._hint}"
            )
        if key.expires is not None and key.expires <= self._now():
            raise NotSignedRight(EXPIRED_TOKEN, "The security token included in the request is expired.")
        return key

    def _check_value(self, signature: Signature, key: AccessKey, request: str) -> None:
        if not hmac.compare_digest(_signed(request, signature, key.secret).encode(), signature.value.encode()):
            raise NotSignedRight(
                MISMATCH,
                "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
                f"Access Key and signing method. {self._hint}",
            )

    def _check_time(self, signature: Signature) -> None:
        signed, now = _time(signature.time), self._now()
        if signed is None or signature.time[:8] != signature.date:
            raise NotSignedRight(
                INCOMPLETE, f"X-Amz-Date {signature.time!r} is not the date of the credential: YYYYMMDDThhmmssZ."
            )
        if signature.lasts is not None and signed + signature.lasts < now:
            raise NotSignedRight(URL_EXPIRED, f"Request has expired: at {signed + signature.lasts}, and it is {now}.")
        if signed - SKEW > now or (signature.lasts is None and signed + SKEW < now):
            raise NotSignedRight(
                STALE, f"Signed at {signed}, and it is {now}: a signature is good for 15 minutes before and after."
            )


_ONLY_V4: Final = (
    "{} is not taken here; allowed: Signature Version 4; fix: for presigned URLs of boto3 "
    "Config(signature_version='s3v4')"
)


def _from_header(text: str, headers: Mapping[str, list[str]]) -> Signature:
    algorithm, _, rest = text.partition(" ")
    if algorithm != ALGORITHM:
        kind = "Signature Version 4a" if algorithm.startswith("AWS4-ECDSA") else f"Authorization {algorithm[:40]!r}"
        raise NotSignedRight(INCOMPLETE, _ONLY_V4.format(kind))
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    return _signature(
        credential=parts.get("Credential", ""),
        headers=parts.get("SignedHeaders", ""),
        value=parts.get("Signature", ""),
        time=_first(headers, "x-amz-date"),
        token=_first(headers, TOKEN),
        lasts=None,
    )


def _from_query(query: Mapping[str, str]) -> Signature:
    if query.get("X-Amz-Algorithm") != ALGORITHM:
        raise NotSignedRight(INCOMPLETE, _ONLY_V4.format(f"X-Amz-Algorithm {query.get('X-Amz-Algorithm')!r:.40}"))
    lasts = query.get("X-Amz-Expires", "")
    if not (lasts.isdecimal() and lasts.isascii() and 0 < int(lasts[:9]) <= LONGEST_PRESIGNED_S):
        raise NotSignedRight(INCOMPLETE, f"X-Amz-Expires {lasts!r:.20}: allowed: 1 to {LONGEST_PRESIGNED_S} seconds.")
    return _signature(
        credential=query.get("X-Amz-Credential", ""),
        headers=query.get("X-Amz-SignedHeaders", ""),
        value=query.get("X-Amz-Signature", ""),
        time=query.get("X-Amz-Date", ""),
        token=query.get("X-Amz-Security-Token", ""),
        lasts=timedelta(seconds=int(lasts)),
    )


def _signature(*, credential: str, headers: str, value: str, **others: Any) -> Signature:
    scope = credential.split("/")
    if len(scope) != SCOPE_PARTS or not all(scope) or scope[-1] != TERMINATOR or not headers or not value:
        raise NotSignedRight(
            INCOMPLETE,
            "The signature is incomplete: it needs Credential=KEY/DATE/REGION/SERVICE/aws4_request, SignedHeaders and "
            "Signature.",
        )
    key_id, date, region, service, _ = scope
    names = tuple(headers.split(";"))
    return Signature(key_id=key_id, date=date, region=region, service=service, headers=names, value=value, **others)


@lru_cache(maxsize=64)
def _time(text: str) -> datetime | None:
    """Parse a signature's time such as `20261201T013000Z`; return None for a text of another form."""
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def _check_headers(signature: Signature, headers: Mapping[str, list[str]]) -> None:
    """Check that the signature covers `host` and all `x-amz-…` headers, and that no signed header is missing."""
    if "host" not in signature.headers:
        raise NotSignedRight(MISMATCH, "SignedHeaders lacks 'host', which must be signed.")
    unsigned = sorted(name for name in headers if name.startswith("x-amz-") and name not in signature.headers)
    if unsigned:
        raise NotSignedRight(
            NOT_SIGNED, f"There were headers present in the request which were not signed: {', '.join(unsigned)}."
        )
    gone = [name for name in signature.headers if name not in headers]
    if gone:
        raise NotSignedRight(MISMATCH, f"Headers that were signed are not in the request: {', '.join(gone)}.")


def _declared(signature: Signature, headers: Mapping[str, list[str]]) -> str | None:
    """Return the body hash that the caller declares; None if the hash must be computed from the body."""
    declared = headers.get(DECLARED_HASH)
    if declared is not None:
        return declared[0]
    if signature.service != "s3":
        return None
    if signature.lasts is None:
        raise NotSignedRight(NO_HASH, f"Missing required header for this request: {DECLARED_HASH}.")
    return "UNSIGNED-PAYLOAD"


def _canonical_request(scope: Scope, signature: Signature, headers: Mapping[str, list[str]], body_hash: str) -> str:
    path = scope["raw_path"].decode("latin-1")
    if signature.service != "s3":
        # Every service but S3 removes `..` and `//` from a path, and encodes the client's encoded path once more.
        path = quote(normalize_url_path(path), safe="/~")
    lines = [f"{name}:{','.join(' '.join(value.split()) for value in headers[name])}\n" for name in signature.headers]
    query = _canonical_query(scope["query_string"].decode("latin-1"))
    return "\n".join([scope["method"], path, query, "".join(lines), ";".join(signature.headers), body_hash])


def _canonical_query(text: str) -> str:
    """Return a query's parameters sorted and encoded as Signature Version 4 requires, without X-Amz-Signature."""
    pairs = [pair.partition("=")[::2] for pair in text.split("&") if pair]
    encoded = [(_encoded(name), _encoded(value)) for name, value in pairs]
    return "&".join(f"{name}={value}" for name, value in sorted(encoded) if name != "X-Amz-Signature")


def _encoded(text: str) -> str:
    return quote(unquote(text, errors="surrogateescape"), safe="-_.~", errors="surrogateescape")


def _signed(request: str, signature: Signature, secret: str) -> str:
    scope = f"{signature.date}/{signature.region}/{signature.service}/{TERMINATOR}"
    digest = hashlib.sha256(request.encode("utf-8", "surrogateescape")).hexdigest()
    text = f"{ALGORITHM}\n{signature.time}\n{scope}\n{digest}"
    key = _signing_key(secret, signature.date, signature.region, signature.service)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


@lru_cache(maxsize=256)
def _signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    """Derive and cache a secret's signing key for a day, region and service, which many calls have in common."""
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, TERMINATOR):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _by_name(scope: Scope) -> dict[str, list[str]]:
    """Return a request's headers as a mapping from each name to all its values in order."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    return found


def _first(headers: Mapping[str, list[str]], name: str) -> str:
    return headers[name][0] if name in headers else ""
