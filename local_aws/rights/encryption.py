"""The permissions on KMS keys that an S3 request needs if its object or bucket is encrypted with a customer's key.

Source: S3 user guide, "Using server-side encryption with AWS KMS keys", sections on permissions and on multipart
uploads. A key that AWS manages (`aws/s3`) requires no permission of the caller. Key policies are not evaluated: the
emulation assumes that every key has the default policy, which leaves all permissions to the account's IAM policies.
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
    """The customer's KMS key of an object; `by_bucket` is True if S3 uses it through a bucket key."""

    arn: str
    by_bucket: bool = False


@dataclass(frozen=True, kw_only=True)
class Encryption:
    """Finds the customer's KMS key of an existing object, or for new objects in a bucket; None if there is no such key.

    Args:
        of_object: returns the customer key of an object by region, bucket and object key.
        of_bucket: returns the customer key of new objects by region, bucket and the key that the request states, "" if
            it states none.
    """

    of_object: Callable[[str, str, str], ObjectKey | None]
    of_bucket: Callable[[str, str, str], ObjectKey | None]

    def rights(self, call: Call) -> Iterator[Request]:
        """Yield the KMS actions, each on a key, for which an S3 request needs permission."""
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
