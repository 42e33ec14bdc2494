"""AWS's resource schemas, which decide replacements, read-only properties, attributes and tags."""

from __future__ import annotations

from typing import Any

import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from local_aws.cloudformation.resources import aws_types
from local_aws.cloudformation.resources.security import Key
from local_aws.cloudformation.templates.schemas import knows, schema_of, value_at


@pytest.mark.parametrize("one", aws_types(), ids=lambda one: one.type)
def test_a_type_is_what_its_schema_says(one: Any) -> None:
    """cfn-lint's own reader gives the same rules as ours, and no type is emulated with a property that AWS lacks."""
    theirs = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", one.type)
    ours = schema_of(one.type)
    assert {"/properties/" + "/".join(path) for path in ours.create_only} == {
        *theirs.schema.get("createOnlyProperties", [])
    }
    assert {"/properties/" + "/".join(path) for path in ours.read_only} == {
        *theirs.schema.get("readOnlyProperties", [])
    }
    assert ours.attributes is not None
    assert {name.replace("\\", "") for name in theirs.get_atts} <= ours.attributes
    assert one.known <= ours.properties
    assert ours.system_tags <= theirs.schema.get("tagging", {}).get("cloudFormationSystemTags", False)


def test_every_emulated_type_has_a_schema() -> None:
    """No rule of replacement is kept by hand."""
    assert [one.type for one in aws_types() if not knows(one.type)] == []


@pytest.mark.parametrize(
    ("type_name", "path", "before", "after", "replaced"),
    [
        ("AWS::Budgets::Budget", ("Budget", "BudgetName"), "a", "b", True),
        ("AWS::Budgets::Budget", ("Budget",), {"BudgetName": "a"}, {"BudgetName": "b"}, True),
        ("AWS::Budgets::Budget", ("Budget",), {"BudgetName": "a", "X": 1}, {"BudgetName": "a", "X": 2}, False),
        ("AWS::Budgets::Budget", ("Budget", "TimeUnit"), "MONTHLY", "DAILY", False),
        ("AWS::SageMaker::EndpointConfig", ("ProductionVariants", "0", "InitialInstanceCount"), 1, 2, True),
        ("AWS::SageMaker::Endpoint", ("EndpointConfigName",), "a", "b", False),
        ("AWS::SageMaker::InferenceComponent", ("InferenceComponentName",), "a", "b", False),
        ("AWS::Scheduler::Schedule", ("GroupName",), "a", "b", False),
        ("AWS::Scheduler::Schedule", ("Name",), "a", "b", True),
        ("AWS::IAM::Policy", ("PolicyName",), "a", "b", False),
        ("AWS::KMS::Key", ("KeySpec",), "a", "b", False),
        ("AWS::S3::Bucket", ("BucketName",), "a", "b", True),
    ],
)
def test_a_change_replaces_where_the_property_is_create_only(
    type_name: str,
    path: tuple[str, ...],
    before: Any,
    after: Any,
    replaced: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A create-only property counts at any depth, and only if its value differs."""
    assert schema_of(type_name).replaces(path, before, after) == replaced


@pytest.mark.parametrize(
    ("type_name", "system_tags"),
    [
        ("AWS::SageMaker::Model", True),
        ("AWS::SageMaker::EndpointConfig", False),
        ("AWS::SageMaker::Endpoint", False),
        ("AWS::SageMaker::InferenceComponent", False),
        ("AWS::IAM::Role", False),
        ("AWS::Logs::LogGroup", True),
    ],
)
def test_system_tags_follow_the_schema(type_name: str, system_tags: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """An endpoint without `aws:cloudformation:stack-name` on AWS has none here either."""
    assert schema_of(type_name).system_tags == system_tags


def test_a_value_is_found_by_its_path() -> None:
    """Behind a star the values of all items count; a missing part is no value."""
    assert value_at({"A": {"B": 1}}, ("A", "B")) == 1
    assert value_at({"A": [{"B": 1}, {"C": 2}, {"B": 3}]}, ("A", "*", "B")) == [1, 3]
    assert value_at({"A": "x"}, ("A", "B")) is None
    assert not Key().replaces({"KeySpec": "SYMMETRIC_DEFAULT"}, {"KeySpec": "RSA_2048"})
