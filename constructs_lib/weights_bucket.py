"""The bucket that models' weights are pushed to."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.acknowledgements import acknowledge
from constructs_lib.bucket_key import BucketKey, encryption_of


class WeightsBucket(Construct):
    """A private, encrypted bucket of a given name that answers over TLS only and forgets uploads that never ended.

    Args:
        scope: the stack or construct it belongs to.
        construct_id: its id there.
        bucket_name: its name, by which the command and the endpoint's stack find it.
        keep_on_destroy: True leaves the bucket in the account when the stack goes. False deletes it, which S3 refuses
            while weights lie in it: `cohost weights prune --all` removes those that no deployed stack uses.
        kms_key: the ARN of the key that weights are encrypted with. None: with S3's own keys.
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
        # Parts of an upload that was given up bill like objects and are shown by no listing of them.
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
