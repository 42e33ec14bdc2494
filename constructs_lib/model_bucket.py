"""The bucket that model archives are published to."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.acknowledgements import acknowledge
from constructs_lib.bucket_key import BucketKey, encryption_of


class ModelBucket(Construct):
    """A private, encrypted bucket that answers over TLS only.

    Args:
        scope: the stack or construct it belongs to.
        construct_id: its id there.
        keep_on_destroy: True leaves the bucket in the account when the stack goes, False deletes it. There is no
            helper that empties it: the model store removes what it wrote, and a bucket that holds anything else is
            left for its owner to decide on.
        kms_key: the ARN of the key that objects are encrypted with. None: with S3's own keys.
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
        """The generated name of the bucket."""
        return self.bucket.bucket_name

    @property
    def bucket_arn(self) -> str:
        """The ARN of the bucket itself, without its objects."""
        return self.bucket.bucket_arn

    def _refuse_plain_http(self) -> None:
        """Deny every action without TLS, to everybody."""
        self.bucket.add_to_resource_policy(
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=["*"],
                principals=[iam.AnyPrincipal()],
                resources=[self.bucket.bucket_arn, self.bucket.arn_for_objects("*")],
                conditions={"Bool": {"aws:SecureTransport": "false"}},
            )
        )
