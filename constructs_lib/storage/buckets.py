"""The buckets for archives and for weights, and the KMS key that encrypts their objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.acknowledgements import acknowledge


@dataclass(frozen=True, kw_only=True)
class BucketKey:
    """The KMS key of a bucket; the rights that this class grants apply only to requests through S3.

    The key's own policy must let the account's IAM policies grant rights to the key, as the default key policy does.
    """

    key: kms.IKey

    @classmethod
    def of(cls, scope: Construct, arn: str | None, construct_id: str = "Key") -> BucketKey | None:
        """Return the key that has this ARN; None if the ARN is None."""
        return None if arn is None else cls(key=kms.Key.from_key_arn(scope, construct_id, arn))

    def grant_read(self, grantee: iam.IGrantable) -> None:
        """Allow S3 to decrypt the objects that the grantee reads."""
        self._grant(grantee, "kms:Decrypt")

    def grant_write(self, grantee: iam.IGrantable) -> None:
        """Allow S3 to encrypt and decrypt the objects that the grantee writes and reads.

        A multipart upload needs both rights (S3 user guide: multipart upload and permissions).
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
    """Return a bucket's encryption settings: the KMS key and an S3 bucket key; without a KMS key, S3's own keys."""
    if key is None:
        return {"encryption": s3.BucketEncryption.S3_MANAGED}
    return {"encryption": s3.BucketEncryption.KMS, "encryption_key": key.key, "bucket_key_enabled": True}


def grant_list(grantee: iam.IGrantable, bucket_arn: str, prefix: str) -> None:
    """Allow the grantee to list the object keys of a bucket below a prefix."""
    iam.Grant.add_to_principal(
        grantee=grantee,
        actions=["s3:ListBucket"],
        resource_arns=[bucket_arn],
        conditions={"StringLike": {"s3:prefix": f"{prefix}*"}},
    )


class ModelBucket(Construct):
    """A private, encrypted bucket that answers over TLS only.

    Args:
        keep_on_destroy: True leaves the bucket in the account when the stack is deleted, False deletes it. Nothing
            empties the bucket before: the model store removes the archives that it wrote, and a bucket with other
            objects stays for its owner to decide on.
        kms_key: the ARN of the KMS key that encrypts objects. None encrypts them with S3's own keys.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, keep_on_destroy: bool, kms_key: str | None = None
    ) -> None:
        super().__init__(scope, construct_id)
        self.key = BucketKey.of(self, kms_key)
        self.bucket: s3.IBucket = s3.Bucket(
            self,
            "Bucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            **encryption_of(self.key),
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            removal_policy=cdk.RemovalPolicy.RETAIN if keep_on_destroy else cdk.RemovalPolicy.DESTROY,
        )
        self._refuse_plain_http()
        acknowledge(
            self.bucket,
            "AwsSolutions-S1",
            reason=(
                "The archives hold settings generated from the catalog and no user data, only the stack's own roles "
                "can read them, and a log bucket would be left behind by cdk destroy."
            ),
        )

    @property
    def bucket_name(self) -> str:
        """Return the generated name of the bucket."""
        return self.bucket.bucket_name

    @property
    def bucket_arn(self) -> str:
        """Return the ARN of the bucket itself, without its objects."""
        return self.bucket.bucket_arn

    def _refuse_plain_http(self) -> None:
        """Deny everybody every action without TLS."""
        self.bucket.add_to_resource_policy(
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=["*"],
                principals=[iam.AnyPrincipal()],
                resources=[self.bucket.bucket_arn, self.bucket.arn_for_objects("*")],
                conditions={"Bool": {"aws:SecureTransport": "false"}},
            )
        )


class WeightsBucket(Construct):
    """A private, encrypted bucket of a given name that answers over TLS only and removes incomplete uploads.

    Args:
        bucket_name: the bucket's name, by which `cohost weights` and the endpoint's stack find the bucket.
        keep_on_destroy: True leaves the bucket in the account when the stack is deleted. False deletes it, which S3
            refuses while it holds weights: `cohost weights prune --all` removes those that no deployed stack uses.
        kms_key: the ARN of the KMS key that encrypts weights. None encrypts them with S3's own keys.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        bucket_name: str,
        keep_on_destroy: bool,
        kms_key: str | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        bucket = s3.Bucket(
            self,
            "Bucket",
            bucket_name=bucket_name,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            **encryption_of(BucketKey.of(self, kms_key)),
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            removal_policy=cdk.RemovalPolicy.RETAIN if keep_on_destroy else cdk.RemovalPolicy.DESTROY,
        )
        # Parts of an unfinished upload bill like objects, and no listing of objects shows them.
        bucket.add_lifecycle_rule(abort_incomplete_multipart_upload_after=cdk.Duration.days(7))
        acknowledge(
            bucket,
            "AwsSolutions-S1",
            reason=(
                "The bucket holds published weights and no user data, only the user and the endpoint's role can read "
                "it, and a log bucket would be left behind by cdk destroy."
            ),
        )
        self.bucket_name = bucket.bucket_name
