"""Signatures made with botocore's signers, for tests that send requests without an SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

if TYPE_CHECKING:
    from collections.abc import Mapping

REGION = "us-east-1"


class DeclaredAuth(S3SigV4Auth):
    """A signer that does not calculate the payload hash, but uses a declared text such as a STREAMING-… form."""

    def payload(self, request: Any) -> str:
        """Return the text for the payload hash that the test declared."""
        return str(request.context["declared"])


def signed_headers(
    key: Mapping[str, str],
    method: str,
    url: str,
    service: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    declared: str | None = None,
    token: str | None = None,
) -> dict[str, str]:
    """Return the headers of a request that is signed now with `key`, a mapping with "key_id" and "secret".

    `declared` is the value for `x-amz-content-sha256`; if it is None, the signer sets that header.
    """
    credentials = Credentials(key["key_id"], key["secret"], token)
    request = AWSRequest(method, url, headers=dict(headers or {}), data=body)
    if declared is not None:
        request.context["declared"] = declared
        signer: Any = DeclaredAuth(credentials, service, REGION)
    else:
        signer = (S3SigV4Auth if service == "s3" else SigV4Auth)(credentials, service, REGION)
    signer.add_auth(request)
    return dict(request.headers.items())


def presigned(key: Mapping[str, str], method: str, url: str, *, lasts: int = 60, token: str | None = None) -> str:
    """Return an S3 URL that is presigned now and valid for `lasts` seconds."""
    request = AWSRequest(method, url)
    credentials = Credentials(key["key_id"], key["secret"], token)
    S3SigV4QueryAuth(credentials, "s3", REGION, expires=lasts).add_auth(request)
    return str(request.url)
