"""Acknowledgements of findings of cdk-nag or cfn-lint, each with the rule's id and a reason, on one construct."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk

if TYPE_CHECKING:
    from constructs import IConstruct


def acknowledge(construct: IConstruct, rule: str, *, reason: str, finding: str | None = None) -> None:
    """Acknowledge a rule of cdk-nag on a construct and its children; if `finding` is given, only that finding.

    A finding in IAM policies is written "Resource::<LogicalId.Arn>/path/*" or "Action::service:verb*".
    """
    rule_id = rule if finding is None else f"{rule}[{finding}]"
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=rule_id, reason=reason))


def accept_lint(construct: IConstruct, rule: str, *, reason: str) -> None:
    """Acknowledge a rule of cfn-lint on the resource that is the construct's default child."""
    resource = construct.node.default_child
    if isinstance(resource, cdk.CfnResource):
        resource.add_metadata("cfn-lint", {"config": {"ignore_checks": [rule]}, "reason": reason})


def arn_finding(resource: IConstruct, path: str) -> str:
    """Return cdk-nag's finding id for `ARN/*`, a wildcard appended to the ARN of a resource of the same stack."""
    element = resource.node.default_child
    if not isinstance(element, cdk.CfnElement):
        raise TypeError(f"{resource.node.path} is no single resource, so it has no ARN to name in a finding")
    return f"Resource::<{cdk.Stack.of(resource).get_logical_id(element)}.Arn>/{path}"
