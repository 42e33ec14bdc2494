"""Acknowledgements of findings of cdk-nag or cfn-lint: by id, with a true reason, on one construct alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk

if TYPE_CHECKING:
    from aws_cdk import aws_lambda as lambda_
    from constructs import IConstruct


def acknowledge(construct: IConstruct, rule: str, *, reason: str, finding: str | None = None) -> None:
    """Acknowledge a rule on a construct and those below it; `finding` narrows it to one finding of that rule.

    A finding in IAM policies is written "Resource::<LogicalId.Arn>/path/*" or "Action::service:verb*".
    """
    rule_id = rule if finding is None else f"{rule}[{finding}]"
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=rule_id, reason=reason))


def accept_lint(construct: IConstruct, rule: str, *, reason: str) -> None:
    """Acknowledge a finding of cfn-lint on the one resource of a construct."""
    resource = construct.node.default_child
    if isinstance(resource, cdk.CfnResource):
        resource.add_metadata("cfn-lint", {"config": {"ignore_checks": [rule]}, "reason": reason})


def accept_function(function: lambda_.Function) -> None:
    """Acknowledge the findings that every function of this project has."""
    acknowledge(
        function,
        "AwsSolutions-L1",
        reason="The handler is tested on Python 3.11 to 3.13; it moves to a newer runtime when its tests do.",
    )
    accept_lint(function, "W3005", reason="The CDK lets every function depend on its role, which it refers to too.")


def arn_finding(resource: IConstruct, path: str) -> str:
    """Return the finding that cdk-nag reports for a wildcard behind the ARN of a resource of the same stack."""
    element = resource.node.default_child
    if not isinstance(element, cdk.CfnElement):
        raise TypeError(f"{resource.node.path} is no single resource, so it has no ARN to name in a finding")
    return f"Resource::<{cdk.Stack.of(resource).get_logical_id(element)}.Arn>/{path}"
