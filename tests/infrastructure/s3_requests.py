"""Calls of an S3 client, noted as the requests that IAM is asked about (service authorization reference: S3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from policies import TLS, Request

if TYPE_CHECKING:
    from collections.abc import Iterator

# The right that an operation on one key needs.
_OF_A_KEY = {
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "PutObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "UploadPartCopy": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
}


class Recorder:
    """Notes every request that a client sends from now on."""

    def __init__(self, client: Any) -> None:
        self.requests: list[Request] = []
        client.meta.events.register("before-parameter-build.s3", self._note)

    def _note(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.requests.extend(requests_of(model.name, params))


def requests_of(operation: str, params: dict[str, Any]) -> Iterator[Request]:
    """Return the IAM requests of one call; an unknown operation is an error of the test."""
    bucket = f"arn:aws:s3:::{params['Bucket']}"
    if operation == "ListObjectsV2":
        yield Request(action="s3:ListBucket", resource=bucket, context={**TLS, "s3:prefix": params.get("Prefix", "")})
    elif operation == "DeleteObjects":
        for item in params["Delete"]["Objects"]:
            yield Request(action="s3:DeleteObject", resource=f"{bucket}/{item['Key']}", context=TLS)
    else:
        yield Request(action=_OF_A_KEY[operation], resource=f"{bucket}/{params['Key']}", context=TLS)
        if operation == "UploadPartCopy":
            # The SDK has made one text of bucket and key by now.
            source = unquote(str(params["CopySource"]))
            yield Request(action="s3:GetObject", resource=f"arn:aws:s3:::{source}", context=TLS)
