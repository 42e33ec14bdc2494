"""The rules of scaling that the simulation and the emulator share: capacities by metrics and steps, cooldowns."""

from __future__ import annotations

from typing import Any

import pytest

from cohost.endpoint.scaling_rules import Cooldowns, stepped_capacity, tracked_capacity


@pytest.mark.parametrize(("load", "target", "expected"), [(12, 5, 3), (10, 5, 2), (0.3 * 10, 1, 3), (0, 5, 0)])
def test_capacity_brings_the_metric_to_its_target(load: float, target: float, expected: int) -> None:
    """Capacity is rounded up, except for errors of floating point."""
    assert tracked_capacity(load, target) == expected


def step(adjustment: int, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """Return one step of a step policy."""
    bounds = {"MetricIntervalLowerBound": low, "MetricIntervalUpperBound": high}
    return {"ScalingAdjustment": adjustment, **{key: value for key, value in bounds.items() if value is not None}}


@pytest.mark.parametrize(
    ("difference", "expected"), [(0, 11), (9.9, 11), (10, 12), (19, 12), (20, 15), (1000, 15), (-1, None)]
)
def test_above_the_threshold_a_step_begins_at_its_lower_bound(difference: float, expected: int | None) -> None:
    """Above the threshold the lower bound belongs to a step, and the upper to the next."""
    configuration = {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": [step(1, 0, 10), step(2, 10, 20), step(5, 20)],
    }
    assert stepped_capacity(configuration, 10, difference=difference, above=True) == expected


@pytest.mark.parametrize(("difference", "expected"), [(0, 9), (-10, 8), (-9, 9), (1, None)])
def test_below_the_threshold_a_step_ends_at_its_upper_bound(difference: float, expected: int | None) -> None:
    """Below the threshold the upper bound of a step belongs to the step."""
    configuration = {"AdjustmentType": "ChangeInCapacity", "StepAdjustments": [step(-1, -10, 0), step(-2, None, -10)]}
    assert stepped_capacity(configuration, 10, difference=difference, above=False) == expected


@pytest.mark.parametrize(
    ("current", "percent", "least", "expected"),
    [(10, 25, None, 12), (10, 5, None, 11), (10, -5, None, 9), (10, -25, None, 8), (10, 25, 4, 14), (0, 50, 2, 0)],
)
def test_percentages_are_rounded_as_the_service_does(
    current: int, percent: int, least: int | None, expected: int
) -> None:
    """A percentage is rounded towards zero, but at least to one, and then to the smallest change."""
    configuration = {
        "AdjustmentType": "PercentChangeInCapacity",
        "MinAdjustmentMagnitude": least,
        "StepAdjustments": [step(percent, 0)],
    }
    assert stepped_capacity(configuration, current, difference=0, above=True) == expected


def test_exact_capacity() -> None:
    """ExactCapacity sets the capacity to the given number."""
    configuration = {"AdjustmentType": "ExactCapacity", "StepAdjustments": [step(0, None, 0)]}
    assert stepped_capacity(configuration, 3, difference=0, above=False) == 0


def in_proportion(value: float) -> Any:
    """Return the capacity that target tracking asks for at a metric of `value` and a target of 5."""
    return lambda capacity: tracked_capacity(capacity * value, 5)


def test_in_the_cooldown_only_a_larger_scale_out_adds_more() -> None:
    """During the cooldown only a larger load adds copies, and after it the load is compared anew."""
    cooldowns = Cooldowns()
    cooldowns.begin_out(1, 0.0, 60.0)
    assert cooldowns.allowed(3, 30.0, in_proportion(12)) is None
    assert cooldowns.allowed(3, 30.0, in_proportion(24)) == 5
    assert cooldowns.allowed(3, 60.0, in_proportion(12)) == 8


def test_a_scale_out_within_a_cooldown_counts_from_the_first_one() -> None:
    """During a scale-out cooldown a load that requested five copies requests no more."""
    cooldowns = Cooldowns()
    cooldowns.begin_out(1, 0.0, 60.0)
    cooldowns.begin_out(3, 30.0, 90.0)
    assert cooldowns.allowed(5, 80.0, in_proportion(24)) is None


def test_growth_ends_the_scale_in_cooldown() -> None:
    """During a scale-in cooldown capacity may grow, which ends the cooldown."""
    cooldowns = Cooldowns(in_until=300.0)
    assert cooldowns.allowed(4, 299.0, lambda _: 2) is None
    assert cooldowns.allowed(4, 299.0, lambda _: 5) == 5
    cooldowns.begin_out(4, 299.0, 310.0)
    assert cooldowns.allowed(5, 299.0, lambda _: 2) == 2
