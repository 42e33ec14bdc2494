"""Costs before and after a change, and the table for a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from cohost.catalog import load_catalog
from cohost.errors import StackError
from cohost.pricing import load_prices
from cohost.pricing_changes import CostLine, cost_changes, deployed_costs, markdown_table, planned_costs

ENCODERS = Path(__file__).parents[3] / "model_configs" / "encoders.yaml"


@pytest.fixture
def cloudformation() -> Any:
    """A client that reaches nothing."""
    return boto3.client("cloudformation", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y")


def line(value: str) -> CostLine:
    """A cost as it would be deployed."""
    return CostLine(value=value, description="")


def stack(**outputs: str) -> dict[str, Any]:
    """A stack as CloudFormation describes it."""
    found = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
    return {
        "Stacks": [{"StackName": "s", "CreationTime": "2026-01-01", "StackStatus": "CREATE_COMPLETE", "Outputs": found}]
    }


def test_cost_lines_of_the_product() -> None:
    """What goes into the stack's outputs, with where it is from."""
    lines = planned_costs(load_catalog(ENCODERS), load_prices(), "us-east-1")
    assert {name: found.value for name, found in lines.items()} == {
        "CostPerHourUsd": "1.408",
        "CostPerMonthUsd": "1027.84",
        "CostPerMillionUsd": "3.76",
    }
    assert lines["CostPerHourUsd"].description == "1 x ml.g5.xlarge in us-east-1: AWS Pricing API, 2026-08-07"


def test_changes_carry_their_sign() -> None:
    """Dearer, cheaper, the same; and no difference is made up where something is unknown."""
    before = {"a": "1.408", "b": "10.00..30.00", "c": "5.00", "d": "unknown"}
    after = {name: line(value) for name, value in {"a": "5.752", "b": "0.00..20.00", "c": "5.00", "d": "1.00"}.items()}
    assert [row[3] for row in cost_changes(before, after)] == ["+4.34", "-10.00", "none", "unknown"]


def test_new_stack_has_nothing_before() -> None:
    """A first deploy is compared with nothing, in words."""
    assert cost_changes({}, {"a": line("1.00")}) == [("a", "not deployed", "1.00", "unknown")]


def test_deployed_costs_are_the_stacks_outputs(cloudformation: Any) -> None:
    """Only the outputs about money are taken; a stack of an older version has none."""
    with Stubber(cloudformation) as stubber:
        stubber.add_response("describe_stacks", stack(CostPerHourUsd="1.408", EndpointName="e"), {"StackName": "s"})
        assert deployed_costs(cloudformation, "s") == {"CostPerHourUsd": "1.408"}


def test_stack_that_is_not_there_costs_nothing_yet(cloudformation: Any) -> None:
    """A missing stack is no fault, a refusal is."""
    with Stubber(cloudformation) as stubber:
        stubber.add_client_error("describe_stacks", "ValidationError", "Stack with id s does not exist")
        assert deployed_costs(cloudformation, "s") == {}
        stubber.add_client_error("describe_stacks", "AccessDenied", "no")
        with pytest.raises(StackError, match="check credentials"):
            deployed_costs(cloudformation, "s")


def test_markdown_is_a_table() -> None:
    """Bars are escaped, what is not there is a dash."""
    assert markdown_table(("a", "b"), [("x|y", None)]) == "| a | b |\n| --- | --- |\n| x\\|y | - |"
