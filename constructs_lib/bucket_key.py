"""A key of the account's own that a bucket's objects are encrypted with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

if TYPE_CHECKING:
    from constructs import Construct


@dataclass(frozen=True, kw_only=True)
class BucketKey:
    """The key, and the rights on it, which hold for S3 alone.

    The key's own policy has to leave rights to the account's IAM policies, as the default one does.
    """

    key: kms.IKey

    @classmethod
    def of(cls, scope: Construct, arn: str | None) -> BucketKey | None:
        """The key of an ARN; None for none."""
        return None if arn is None else cls(key=kms.Key.from_key_arn(scope, "Key", arn))

    def grant_read(self, grantee: iam.IGrantable) -> None:
        """Allow S3 to decrypt what the grantee reads."""
        self._grant(grantee, "kms:Decrypt")

    def grant_write(self, grantee: iam.IGrantable) -> None:
        """Allow S3 to encrypt and decrypt what the grantee writes and reads.

        An upload in parts needs both (S3 user guide: multipart upload and permissions).
        """
        self._grant(grantee, "kms:Decrypt", "kms:GenerateDataKey")

    def _grant(self, grantee: iam.IGrantable, *actions: str) -> None:
        stack = cdk.Stack.of(self.key)
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=[*actions],
            resource_arns=[self.key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": f"s3.{stack.region}.{stack.url_suffix}"}},
        )


def encryption_of(key: BucketKey | None) -> dict[str, Any]:
    """How a bucket encrypts: with that key, asked for once in a while and not for each object, or with S3's own."""
    if key is None:
        return {"encryption": s3.BucketEncryption.S3_MANAGED}
    return {"encryption": s3.BucketEncryption.KMS, "encryption_key": key.key, "bucket_key_enabled": True}
