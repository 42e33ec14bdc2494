"""Costs before and after a change, and the table for a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.stub import Stubber
from fakes.refusals import refused

from cohost.catalog.models import Catalog
from cohost.catalog_file import load_catalog
from cohost.errors import StackError
from cohost.forecast.pricing.changes import CostLine, cost_changes, deployed_costs, planned_costs
from cohost.forecast.pricing.price_list import load_prices
from cohost.report.formats import markdown_table

ENCODERS = Path(__file__).parents[4] / "model_configs" / "encoders.yaml"


@pytest.fixture
def cloudformation() -> Any:
    """A client that reaches nothing."""
    return boto3.client("cloudformation", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y")


def line(value: str) -> CostLine:
    """Return a cost as it would be deployed."""
    return CostLine(value=value, description="")


def stack(**outputs: str) -> dict[str, Any]:
    """Return a stack as CloudFormation describes it."""
    found = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
    return {
        "Stacks": [{"StackName": "s", "CreationTime": "2026-01-01", "StackStatus": "CREATE_COMPLETE", "Outputs": found}]
    }


def test_cost_lines_of_the_product() -> None:
    """The stack's cost outputs contain the prices and the source of each price."""
    lines = planned_costs(load_catalog(ENCODERS).catalog, load_prices(), "us-east-1")
    assert {name: found.value for name, found in lines.items()} == {
        "CostPerHourUsd": "1.408",
        "CostPerMonthUsd": "1027.84",
        "CostPerMillionUsd": "3.76",
    }
    assert lines["CostPerHourUsd"].description == "1 x ml.g5.xlarge in us-east-1: AWS Pricing API, 2026-08-07"


def scaled(scaling: dict[str, Any], **endpoint: Any) -> Catalog:
    """The product's catalog with other scaling."""
    data = yaml.safe_load(ENCODERS.read_text())
    del data["endpoint"]["initial_instance_count"]
    data["endpoint"] |= endpoint
    return Catalog.model_validate(data | {"scaling": scaling})


def test_cost_lines_of_a_catalog_that_scales_to_zero() -> None:
    """A scale-to-zero catalog costs nothing without calls, and its outputs name the cost of a deploy."""
    lines = planned_costs(scaled({}, topology="scale-to-zero"), load_prices(), "us-east-1")

    assert {name: found.value for name, found in lines.items()} == {
        "CostPerHourUsd": "0.000..1.408",
        "CostPerMonthUsd": "0.00..1027.84",
        "CostPerMillionUsd": "3.76",
        # 1.408 USD an hour for 8.4 minutes of starting and 27 of idling.
        "CostFirstDeployUsd": "0.83",
    }
    assert lines["CostPerHourUsd"].description.startswith("0 to 1 x ml.g5.xlarge in us-east-1")
    assert lines["CostPerMonthUsd"].description.startswith("730 hours, from never called to all the time; 0 to 1 x")
    assert "run 1 for 35 minutes without calls; ml.g5.xlarge in" in lines["CostFirstDeployUsd"].description


def test_first_deploy_counts_the_copies_and_the_idle_time() -> None:
    """The cost of a first deploy includes the start of the copies, the idle time and the end of the instances."""
    catalog = scaled({"max": 2, "idle_minutes": 10}, topology="scale-to-zero", copy_count=2)
    assert planned_costs(catalog, load_prices(), "us-east-1")["CostFirstDeployUsd"].value == "1.43"
    catalog = scaled({"max": 1, "idle_minutes": 60}, topology="scale-to-zero")
    assert planned_costs(catalog, load_prices(), "us-east-1")["CostFirstDeployUsd"].value == "1.89"


def test_bounds_of_scaling_are_bounds_of_the_bill() -> None:
    """The bill ranges from the fewest to the most instances; copies on one instance share its price."""
    multi = planned_costs(scaled({"min": 1, "max": 3}), load_prices(), "us-east-1")
    assert multi["CostPerHourUsd"].value == "1.408..4.224"
    assert "CostFirstDeployUsd" not in multi
    shared = scaled({"min": 1, "max": 8}, topology="scale-to-zero", instance_type="ml.g6.12xlarge")
    assert planned_costs(shared, load_prices(), "us-east-1")["CostPerHourUsd"].value == "5.752..11.504"


def test_unknown_price_makes_the_first_deploy_unknown_too() -> None:
    """The cost of a first deploy is unknown in a region without a price."""
    lines = planned_costs(scaled({}, topology="scale-to-zero"), load_prices(), "eu-central-1")
    assert {line.value for line in lines.values()} == {"unknown"}


def test_changes_carry_their_sign() -> None:
    """A change of cost has its sign, and none is computed for an unknown cost."""
    before = {"a": "1.408", "b": "10.00..30.00", "c": "5.00", "d": "unknown"}
    after = {name: line(value) for name, value in {"a": "5.752", "b": "0.00..20.00", "c": "5.00", "d": "1.00"}.items()}
    assert [row[3] for row in cost_changes(before, after)] == ["+4.34", "-10.00", "none", "unknown"]


def test_new_stack_has_nothing_before() -> None:
    """The diff of a new stack says that there was no cost before."""
    assert cost_changes({}, {"a": line("1.00")}) == [("a", "not deployed", "1.00", "unknown")]


def test_deployed_costs_are_the_stacks_outputs(cloudformation: Any) -> None:
    """The deployed costs are the stack's outputs about money; a stack of an older version has none."""
    with Stubber(cloudformation) as stubber:
        stubber.add_response("describe_stacks", stack(CostPerHourUsd="1.408", EndpointName="e"), {"StackName": "s"})
        assert deployed_costs(cloudformation, "s") == {"CostPerHourUsd": "1.408"}


def test_stack_that_is_not_there_costs_nothing_yet(cloudformation: Any) -> None:
    """A missing stack has no cost, and a denied request is an error."""
    with Stubber(cloudformation) as stubber:
        stubber.add_client_error("describe_stacks", "ValidationError", "Stack with id s does not exist")
        assert deployed_costs(cloudformation, "s") == {}
        stubber.add_client_error("describe_stacks", "AccessDenied", "no")
        with refused("stack-refused", "stack s", kind=StackError):
            deployed_costs(cloudformation, "s")


def test_markdown_is_a_table() -> None:
    """In the Markdown table bars are escaped and missing values are dashes."""
    assert markdown_table(("a", "b"), [("x|y", None)]) == "| a | b |\n| --- | --- |\n| x\\|y | - |"
