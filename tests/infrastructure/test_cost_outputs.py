"""The stack's outputs contain its costs, so `cdk diff` shows a change of costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from synthesis import make_catalog, make_stack, only, resources, template_of

from cohost.catalog.sections.monitoring import Budget
from cohost.catalog_file import load_catalog

if TYPE_CHECKING:
    from pathlib import Path


def costs_of(template: dict[str, Any]) -> dict[str, str]:
    """The outputs about money."""
    return {name: output["Value"] for name, output in template["Outputs"].items() if name.startswith("Cost")}


def test_product_states_what_it_costs(product: dict[str, Any]) -> None:
    """The outputs have the prices per hour and per month; the price per million items is unknown until a load test."""
    assert costs_of(product) == {
        "CostPerHourUsd": "1.408",
        "CostPerMonthUsd": "1027.84",
        "CostPerMillionUsd": "unknown",
    }


def test_each_cost_says_where_it_is_from(product: dict[str, Any]) -> None:
    """Each cost output names date and source of the price, or the way to a measured rate."""
    described = {name: product["Outputs"][name]["Description"] for name in costs_of(product)}
    assert all("AWS Pricing API, 2026-08-07" in text for text in described.values())
    assert "not measured with this catalog; measure with `cohost bench`" in described["CostPerMillionUsd"]


def test_more_instances_cost_more() -> None:
    """Three instances cost three times as much per hour as one."""
    template = template_of(make_stack(make_catalog(endpoint={"initial_instance_count": 3})))
    assert costs_of(template)["CostPerHourUsd"] == "4.224"
    assert costs_of(template)["CostPerMonthUsd"] == "3083.52"


def test_unknown_price_is_unknown_and_not_zero() -> None:
    """Each cost output says "unknown" for a type or region without a price."""
    other_type = template_of(make_stack(make_catalog(endpoint={"instance_type": "ml.g9.xlarge"})))
    other_region = template_of(make_stack(make_catalog(), region="eu-central-1"))
    assert set(costs_of(other_type).values()) == {"unknown"}
    assert set(costs_of(other_region).values()) == {"unknown"}


def test_changed_instance_type_shows_in_the_costs_alone() -> None:
    """The outputs of ml.g5.xlarge and of ml.g6.12xlarge differ in the costs only."""
    before = costs_of(template_of(make_stack(make_catalog())))
    after = costs_of(template_of(make_stack(make_catalog(endpoint={"instance_type": "ml.g6.12xlarge"}))))
    assert (before["CostPerHourUsd"], after["CostPerHourUsd"]) == ("1.408", "5.752")
    assert (before["CostPerMonthUsd"], after["CostPerMonthUsd"]) == ("1027.84", "4198.96")


def test_no_budget_unless_the_catalog_asks(product: dict[str, Any]) -> None:
    """A stack without `budget` has no budget."""
    assert resources(product, "AWS::Budgets::Budget") == {}


def test_budget_counts_the_stacks_tags_and_mails(tmp_path: Path) -> None:
    """The budget counts resources with the catalog's tags, and mails before and at its limit."""
    # GIVEN
    path = tmp_path / "catalog.yaml"
    path.write_text(
        "endpoint: {name: e, instance_type: ml.g5.xlarge, image: 'djl-inference:0.36.0-lmi26.0.0-cu130'}\n"
        "tags: {project: nli}\n"
        "budget: {monthly_usd: 1200, email: team@example.com}\n"
        "models: {m: {model_id: org/m, task: text-classification}}\n"
    )
    # WHEN
    template = template_of(make_stack(load_catalog(path).catalog))
    # THEN
    _, budget = only(template, "AWS::Budgets::Budget")
    properties = budget["Properties"]
    assert properties["Budget"]["BudgetLimit"] == {"Amount": 1200, "Unit": "USD"}
    assert properties["Budget"]["BudgetName"] == "LmiCohostStack-us-east-1"
    assert properties["Budget"]["CostFilters"] == {"TagKeyValue": ["user:project$nli"]}
    notifications = [found["Notification"] for found in properties["NotificationsWithSubscribers"]]
    assert [(n["NotificationType"], n["Threshold"]) for n in notifications] == [
        ("ACTUAL", 80),
        ("ACTUAL", 100),
        ("FORECASTED", 100),
    ]


def test_budget_without_tags_counts_the_service() -> None:
    """A budget without cost allocation tags counts all of SageMaker, because this stack's part is not known."""
    catalog = make_catalog(tags={}).model_copy(update={"budget": Budget(monthly_usd=10.0, email="a@example.com")})
    _, budget = only(template_of(make_stack(catalog)), "AWS::Budgets::Budget")
    assert budget["Properties"]["Budget"]["CostFilters"] == {"Service": ["Amazon SageMaker"]}
