"""The actions of CloudFormation's handlers, as the resource schemas list them."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from local_aws.cloudformation.resources import aws_types
from local_aws.cloudformation.templates.handlers import CALLED_FOR, handler_actions, permissions


def test_handler_reads_the_resource_after_a_change_and_not_after_its_end() -> None:
    """The attributes of a resource come from the handler that reads."""
    assert "sns:ListTagsForResource" in handler_actions("AWS::SNS::Topic", "create", {})
    assert handler_actions("AWS::SNS::Topic", "delete", {}) == ["sns:GetTopicAttributes", "sns:DeleteTopic"]


def test_action_is_asked_for_with_its_property_only() -> None:
    """A role without managed policies has none to attach; one with them has."""
    kind, action = "AWS::IAM::Role", "iam:AttachRolePolicy"
    assert action not in handler_actions(kind, "create", {})
    assert action in handler_actions(kind, "create", {"ManagedPolicyArns": []})
    code = {"Code": {"S3Bucket": "b", "S3Key": "k"}}
    assert "s3:GetObject" in handler_actions("AWS::Lambda::Function", "create", code)
    assert "s3:GetObjectVersion" not in handler_actions("AWS::Lambda::Function", "create", code)


def test_type_without_a_schema_has_no_actions() -> None:
    """A custom resource is only invoked, and that call is judged itself."""
    assert handler_actions("Custom::Store", "create", {"a": 1}) == []


@pytest.mark.parametrize("kind", CALLED_FOR)
def test_each_exception_is_one_of_the_schema(kind: str) -> None:
    """A pattern that no action of the schema matches would be a slip of the pen."""
    listed = {action for actions in permissions(kind).values() for action in actions}
    assert [one for one in CALLED_FOR[kind] if not any(fnmatchcase(action, one) for action in listed)] == []


def test_each_emulated_type_has_a_schema_with_permissions() -> None:
    """Without a schema nothing but the calls would be judged."""
    kinds = {one.type for one in aws_types()}
    assert [kind for kind in kinds if not permissions(kind).get("create")] == ["AWS::CDK::Metadata"]
