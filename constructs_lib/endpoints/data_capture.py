"""The capture of an endpoint's calls and answers in a separate bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from constructs_lib.acknowledgements import acknowledge, arn_finding

if TYPE_CHECKING:
    from constructs_lib.endpoints.hosted_endpoint import HostedEndpoint


class DataCapture(Construct):
    """SageMaker's data capture (AWS: "Capture data from real-time endpoint") for an endpoint.

    The records contain texts of users, so they have a bucket apart from the archives. The bucket stays when the stack
    is deleted; S3 deletes each record after `expire_days`.

    Args:
        endpoint: the endpoint whose calls are recorded; its role may write below the prefix and nowhere else.
        sampling_percentage: the share of calls that is recorded, in percent.
        prefix: the start of every record's key, before the part that SageMaker adds; ends with "/".
        kms_key: the ARN of the KMS key that encrypts the records. None leaves them to the bucket's own encryption.
        expire_days: the number of days until S3 deletes a record.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        endpoint: HostedEndpoint,
        sampling_percentage: int,
        prefix: str,
        kms_key: str | None,
        expire_days: int,
    ) -> None:
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            removal_policy=cdk.RemovalPolicy.RETAIN,
            lifecycle_rules=[s3.LifecycleRule(prefix=prefix, expiration=cdk.Duration.days(expire_days))],
        )
        acknowledge(
            self.bucket,
            "AwsSolutions-S1",
            reason="A log of who reads the records needs a bucket of its own; turn it on where the account logs S3.",
        )
        self._grant_write(endpoint.execution_role.role, prefix, kms_key)
        endpoint.capture_data(
            sagemaker.CfnEndpointConfig.DataCaptureConfigProperty(
                enable_capture=True,
                initial_sampling_percentage=sampling_percentage,
                destination_s3_uri=f"s3://{self.bucket.bucket_name}/{prefix}",
                kms_key_id=kms_key,
                capture_options=[
                    sagemaker.CfnEndpointConfig.CaptureOptionProperty(capture_mode=mode) for mode in ("Input", "Output")
                ],
                capture_content_type_header=sagemaker.CfnEndpointConfig.CaptureContentTypeHeaderProperty(
                    json_content_types=["application/json"]
                ),
            )
        )

    def _grant_write(self, role: iam.IRole, prefix: str, kms_key: str | None) -> None:
        objects = self.bucket.arn_for_objects(f"{prefix}*")
        iam.Grant.add_to_principal(grantee=role, actions=["s3:PutObject"], resource_arns=[objects])
        acknowledge(
            role,
            "AwsSolutions-IAM5",
            finding=arn_finding(self.bucket, f"{prefix}*"),
            reason="SageMaker makes up the keys of records; the wildcard stays below their own prefix.",
        )
        if kms_key is not None:
            actions = ["kms:Decrypt", "kms:GenerateDataKey"]
            iam.Grant.add_to_principal(grantee=role, actions=actions, resource_arns=[kms_key])
