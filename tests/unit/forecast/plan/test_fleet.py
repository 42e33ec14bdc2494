"""Placing a catalog on endpoints of several types, with loads, replicas and prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.errors import PlanError
from cohost.forecast.fleet import Load, plan_fleet, read_loads
from cohost.forecast.pricing.price_list import load_prices

if TYPE_CHECKING:
    from pathlib import Path

    from cohost.catalog.models import Catalog
    from cohost.forecast.plan.profiles import Profile

REGION = "us-east-1"


@pytest.fixture
def many(encoders: Catalog) -> Catalog:
    """Return three hundred models of three kinds."""
    models = {f"{name}-{number}": entry for number in range(100) for name, entry in encoders.models.items()}
    return encoders.model_copy(update={"models": models})


def test_three_encoders_need_one_endpoint(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """The planner places the three encoders of the default catalog on one endpoint."""
    fleet = plan_fleet(encoders, encoder_profiles, prices=load_prices(), region=REGION, instance_types=["ml.g5.xlarge"])
    (option,) = fleet.options
    assert [sorted(placement.names) for placement in option.placements] == [["mdeberta", "minilm", "xlmr-large"]]
    assert option.usd_per_hour == 1.408
    assert option.usd_per_month == pytest.approx(1027.84)
    assert option.usd_per_million == pytest.approx(3.76, abs=0.01)


def test_options_come_cheapest_first(many: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """The options have all instance types with a known price, the cheapest first, with a place for every model."""
    fleet = plan_fleet(many, encoder_profiles, prices=load_prices(), region=REGION)
    costs = [option.usd_per_hour for option in fleet.options if option.usd_per_hour is not None]
    assert costs == sorted(costs)
    assert len(costs) >= 5
    for option in fleet.options:
        assert sum(len(placement.names) for placement in option.placements) == 300
        assert 0 < option.fullest_share <= 1 + 1e-9
        assert 1 <= option.fewest_models <= option.most_models


def test_replicas_are_on_different_endpoints(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """Two replicas of a model are on different endpoints, so they do not fail together."""
    fleet = plan_fleet(
        encoders,
        encoder_profiles,
        prices=load_prices(),
        region=REGION,
        loads={"mdeberta": Load(replicas=3)},
        instance_types=["ml.g5.xlarge"],
    )
    holding = [placement.names.count("mdeberta") for placement in fleet.options[0].placements]
    assert holding == [1, 1, 1]


def test_load_needs_endpoints_that_memory_does_not(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """Models that fit one GPU in memory are placed on several if their load needs more than its time."""
    loads = {name: Load(items_per_second=52) for name in encoders.models}
    fleet = plan_fleet(
        encoders, encoder_profiles, prices=load_prices(), region=REGION, loads=loads, instance_types=["ml.g5.xlarge"]
    )
    assert len(fleet.options[0].placements) == 3


def test_unknown_price_stays_unknown_and_comes_last(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """A type without a price is placed, comes last, and never costs 0."""
    fleet = plan_fleet(
        encoders,
        encoder_profiles,
        prices=load_prices(),
        region=REGION,
        instance_types=["ml.g6.xlarge", "ml.g5.xlarge"],
    )
    assert [(option.instance_type, option.usd_per_hour) for option in fleet.options] == [
        ("ml.g5.xlarge", 1.408),
        ("ml.g6.xlarge", None),
    ]
    assert fleet.options[1].usd_per_month is None


def test_types_that_cannot_hold_a_model_are_left_out(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """An instance type that is too small for a model, or unknown, is listed with the reason."""
    fleet = plan_fleet(
        encoders,
        encoder_profiles,
        prices=load_prices(),
        region=REGION,
        instance_types=["ml.c7i.large", "ml.g9.xlarge"],
    )
    assert fleet.options == ()
    assert [reason.partition(":")[0] for reason in fleet.left_out] == ["ml.c7i.large", "ml.g9.xlarge"]


def test_model_without_profile_stops_the_plan(encoders: Catalog) -> None:
    """A fleet with a model without a profile is rejected."""
    with refused("profile-missing", "models", kind=PlanError):
        plan_fleet(encoders, {}, prices=load_prices(), region=REGION)


def test_loads_are_read_from_a_file(tmp_path: Path, encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """A file has the load of each model, and a name outside the catalog is rejected."""
    path = tmp_path / "loads.yaml"
    path.write_text("mdeberta: {items_per_second: 20, replicas: 2}\nnobody: {}\n")
    loads = read_loads(path)
    assert loads["mdeberta"] == Load(items_per_second=20, replicas=2)
    with refused("load-stray", "--loads", kind=PlanError):
        plan_fleet(encoders, encoder_profiles, prices=load_prices(), region=REGION, loads=loads)


@pytest.mark.parametrize(
    "text", ["a: {replicas: 0}", "a: {items_per_second: -1}", "a: {nope: 1}", "[1]", "a: 1", "a: ["]
)
def test_wrong_loads_are_told(tmp_path: Path, text: str) -> None:
    """A load file of another form is rejected with an example."""
    path = tmp_path / "loads.yaml"
    path.write_text(text)
    with refused("loads-invalid", str(path), kind=PlanError):
        read_loads(path)
