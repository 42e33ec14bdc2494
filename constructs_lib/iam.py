"""The execution role of a SageMaker model's container."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.acknowledgements import acknowledge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_logs as logs
    from constructs import IConstruct

    from cohost.hardware.images import ImageUri


class ExecutionRole(Construct):
    """The execution role with the least rights that SageMaker needs (AWS: CreateModel API, role permissions).

    The role may pull from one image repository, write one log group and put metrics into SageMaker's namespaces. The
    right to read the archives is granted by the construct `ModelStore`. Every resource that uses the role must depend
    on `policy`, the separate resource with the role's rights.

    Args:
        image: the image from whose repository the role may pull; it may be in another account.
        log_group: the log group that the endpoint's containers write to; `allow_logs` adds further groups.
    """

    def __init__(self, scope: Construct, construct_id: str, *, image: ImageUri, log_group: logs.ILogGroup) -> None:
        super().__init__(scope, construct_id)
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))
        self._grant_pull(image)
        self.allow_logs(log_group)
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["cloudwatch:PutMetricData"],
                resources=["*"],
                conditions={"StringLike": {"cloudwatch:namespace": ["AWS/SageMaker", "/aws/sagemaker/*"]}},
            )
        )
        acknowledge(
            self.role,
            "AwsSolutions-IAM5",
            finding="Resource::*",
            reason=(
                "ecr:GetAuthorizationToken and cloudwatch:PutMetricData take no resource; "
                "the latter is limited to SageMaker's namespaces by a condition."
            ),
        )

    @property
    def role_arn(self) -> str:
        """Return the ARN of the role."""
        return self.role.role_arn

    @property
    def policy(self) -> IConstruct:
        """Return the policy resource with the role's rights, including rights that are granted later."""
        return self.role.node.find_child("DefaultPolicy")

    def allow_logs(self, log_group: logs.ILogGroup) -> None:
        """Allow the containers to write to a further log group."""
        log_group.grant(self.role, "logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams")

    def allow_alarms(self, names: Sequence[str]) -> None:
        """Allow SageMaker to read the rollback alarms (developer guide, "Auto-Rollback Configuration")."""
        if names:
            stack = cdk.Stack.of(self)
            format_arn = partial(
                stack.format_arn, service="cloudwatch", resource="alarm", arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
            )
            arns = [format_arn(resource_name=name) for name in names]
            self.role.add_to_policy(iam.PolicyStatement(actions=["cloudwatch:DescribeAlarms"], resources=arns))

    def _grant_pull(self, image: ImageUri) -> None:
        repository_arn = cdk.Stack.of(self).format_arn(
            service="ecr",
            account=image.account,
            region=image.region,
            resource="repository",
            resource_name=image.repository,
        )
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
                resources=[repository_arn],
            )
        )
        self.role.add_to_policy(iam.PolicyStatement(actions=["ecr:GetAuthorizationToken"], resources=["*"]))
