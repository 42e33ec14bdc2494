"""The table of the resource types' rights, held against the handlers in CloudFormation's resource schemas."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

import pytest

from cohost.deploy.rights.resource_types import RESOURCE_TYPES
from local_aws.cloudformation.templates.handlers import CALLED_FOR, handler_actions, permissions

HANDLERS: Final = ("create", "read", "update", "delete", "tagging")

# Actions of the table that the type's schema does not list, each with its source.
BESIDE_THE_SCHEMA: Final = {
    "AWS::SageMaker::EndpointConfig": {
        "sagemaker:CreateEndpoint": "API reference, CreateEndpoint: its example policies name the configuration",
        "sagemaker:UpdateEndpoint": "the same, by analogy",
        "kms:CreateGrant": "SageMaker developer guide, API permissions: CreateEndpoint",
    },
    "Custom::": {"lambda:InvokeFunction": "aws-solutions/centralized-logging-with-opensearch#216"},
}


def granted(kind: str) -> set[str]:
    """All actions of a type's row."""
    return {action for grant in RESOURCE_TYPES[kind].grants for action in grant.actions.split()}


def listed(kind: str) -> set[str]:
    """All actions of the type's schema."""
    return {action for handler in HANDLERS for action in permissions(kind).get(handler, ())}


@pytest.mark.parametrize("kind", [kind for kind in RESOURCE_TYPES if kind not in {"Custom::", "AWS::CDK::Metadata"}])
def test_row_has_each_action_of_the_schema(kind: str) -> None:
    """An action is missing only where the handler calls it for a property that this project never states."""
    assert listed(kind)
    missing = {
        action
        for action in listed(kind) - granted(kind)
        if not any(fnmatchcase(action, pattern) for pattern in CALLED_FOR.get(kind, {}))
    }
    assert missing == set()


@pytest.mark.parametrize("kind", RESOURCE_TYPES)
def test_row_has_no_action_without_a_source(kind: str) -> None:
    """Each action that no schema lists has its source in this test."""
    assert granted(kind) - listed(kind) == set(BESIDE_THE_SCHEMA.get(kind, {}))


@pytest.mark.parametrize("kind", RESOURCE_TYPES)
def test_plain_resource_needs_no_action_that_its_row_grants_for_a_property(kind: str) -> None:
    """Without any property a handler calls only what the row grants always."""
    always = {action for grant in RESOURCE_TYPES[kind].grants if grant.when is None for action in grant.actions.split()}
    needed = {action for verb in ("create", "update", "delete") for action in handler_actions(kind, verb, {})}
    assert needed - {"iam:PassRole"} <= always
