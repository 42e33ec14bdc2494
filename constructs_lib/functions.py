"""The Lambda functions of this project's custom resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs

from constructs_lib.acknowledgements import accept_lint, acknowledge

if TYPE_CHECKING:
    from constructs import Construct


def add_function(scope: Construct, **properties: Any) -> tuple[lambda_.Function, iam.Role]:
    """Add a Python Lambda function with its log group and a role that may only write that log group.

    Args:
        scope: the construct whose children become `Logs`, `Role` and `Function`.
        properties: further arguments of `lambda_.Function`: description, code, handler, timeout and more.
    """
    log_group = logs.LogGroup(
        scope, "Logs", retention=logs.RetentionDays.ONE_MONTH, removal_policy=cdk.RemovalPolicy.DESTROY
    )
    role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    log_group.grant_write(role)
    function = lambda_.Function(
        scope,
        "Function",
        runtime=lambda_.Runtime.PYTHON_3_13,
        architecture=lambda_.Architecture.ARM_64,
        log_group=log_group,
        role=role,
        **properties,
    )
    acknowledge(
        function,
        "AwsSolutions-L1",
        reason="The handler is tested on Python 3.11 to 3.13; it moves to a newer runtime when its tests do.",
    )
    accept_lint(function, "W3005", reason="The CDK lets every function depend on its role, which it refers to too.")
    return function, role
