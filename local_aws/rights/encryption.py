"""The rights on KMS keys that a request to S3 needs, because of the key of an object or of its bucket.

Source: S3 user guide, "Using server-side encryption with AWS KMS keys", sections on permissions and on multipart
uploads. Keys that AWS manages (`aws/s3`) need no right of the caller. Key policies are not evaluated: the emulation
treats every key as one whose policy leaves rights to the account's IAM policies, as the default policy does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from local_aws.kit.account import ACCOUNT_ID, PARTITION
from local_aws.rights.policies import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local_aws.rights.resource_arns import Call

DECRYPT: Final = "kms:Decrypt"
ENCRYPT: Final = "kms:GenerateDataKey"
# A multipart upload needs both from its start, since S3 decrypts the parts to join them.
_READS: Final = frozenset({"GetObject", "GetObjectVersion", "HeadObject"})
_WRITES: Final = frozenset({"CopyObject", "PostObject", "PutObject"})
_PARTS: Final = frozenset({"CompleteMultipartUpload", "CreateMultipartUpload", "UploadPart", "UploadPartCopy"})


@dataclass(frozen=True, kw_only=True)
class ObjectKey:
    """The customer key of an object: its ARN, and True if S3 uses it through a bucket key."""

    arn: str
    by_bucket: bool = False


@dataclass(frozen=True, kw_only=True)
class Encryption:
    """The look-ups of keys: of an object that exists, and of the objects that a bucket gets, each None for no key.

    Args:
        of_object: returns the customer key of an object by region, bucket and object key.
        of_bucket: returns the customer key of new objects by region, bucket and the key that the request states, "" if
            it states none.
    """

    of_object: Callable[[str, str, str], ObjectKey | None]
    of_bucket: Callable[[str, str, str], ObjectKey | None]

    def rights(self, call: Call) -> Iterator[Request]:
        """Yield the actions on keys that a request to S3 needs."""
        if call.service != "s3" or not call.parameters["Key"]:
            return
        bucket, name = str(call.parameters["Bucket"]), str(call.parameters["Key"])
        if call.operation in _READS:
            yield from _actions(call, self.of_object(call.region, bucket, name), bucket, name, DECRYPT)
        if call.operation in _WRITES | _PARTS:
            key = self.of_bucket(call.region, bucket, str(call.parameters.get("SSEKMSKeyId", "")))
            actions = (DECRYPT, ENCRYPT) if call.operation in _PARTS else (ENCRYPT,)
            yield from _actions(call, key, bucket, name, *actions)
        if source := str(call.parameters.get("CopySource", "")):
            bucket, _, name = source.partition("/")
            yield from _actions(call, self.of_object(call.region, bucket, name), bucket, name, DECRYPT)


def _actions(call: Call, key: ObjectKey | None, bucket: str, name: str, *actions: str) -> Iterator[Request]:
    if key is None:
        return
    of = bucket if key.by_bucket else f"{bucket}/{name}"
    context = {
        "kms:viaservice": [f"s3.{call.region}.amazonaws.com"],
        "kms:calleraccount": [ACCOUNT_ID],
        "kms:encryptioncontext:aws:s3:arn": [f"arn:{PARTITION}:s3:::{of}"],
        "aws:requestedregion": [call.region],
        "aws:resourceaccount": [ACCOUNT_ID],
    }
    for action in actions:
        yield Request(action=action, resource=key.arn, context=context)
