"""Step policies."""

from __future__ import annotations

from typing import Any

import pytest

from local_aws.autoscaling.policies import check_steps, stepped_capacity
from local_aws.kit.errors import ValidationException


def step(adjustment: int, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """One step."""
    bounds = {"MetricIntervalLowerBound": low, "MetricIntervalUpperBound": high}
    return {"ScalingAdjustment": adjustment, **{key: value for key, value in bounds.items() if value is not None}}


@pytest.mark.parametrize(
    ("difference", "expected"), [(0, 11), (9.9, 11), (10, 12), (19, 12), (20, 15), (1000, 15), (-1, None)]
)
def test_above_the_threshold_a_step_begins_at_its_lower_bound(difference: float, expected: int | None) -> None:
    """The lower bound belongs to the step, the upper to the next (user guide)."""
    configuration = {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": [step(1, 0, 10), step(2, 10, 20), step(5, 20)],
    }
    assert stepped_capacity(configuration, 10, difference=difference, above=True) == expected


@pytest.mark.parametrize(("difference", "expected"), [(0, 9), (-10, 8), (-9, 9), (1, None)])
def test_below_the_threshold_a_step_ends_at_its_upper_bound(difference: float, expected: int | None) -> None:
    """There it is the upper bound that belongs to the step."""
    configuration = {"AdjustmentType": "ChangeInCapacity", "StepAdjustments": [step(-1, -10, 0), step(-2, None, -10)]}
    assert stepped_capacity(configuration, 10, difference=difference, above=False) == expected


@pytest.mark.parametrize(
    ("current", "percent", "least", "expected"),
    [(10, 25, None, 12), (10, 5, None, 11), (10, -5, None, 9), (10, -25, None, 8), (10, 25, 4, 14), (0, 50, 2, 0)],
)
def test_percentages_are_rounded_as_the_service_does(
    current: int, percent: int, least: int | None, expected: int
) -> None:
    """Towards zero, but to a whole one where less would be left; then the smallest change."""
    configuration = {
        "AdjustmentType": "PercentChangeInCapacity",
        "MinAdjustmentMagnitude": least,
        "StepAdjustments": [step(percent, 0)],
    }
    assert stepped_capacity(configuration, current, difference=0, above=True) == expected


def test_exact_capacity() -> None:
    """The number is the capacity itself."""
    configuration = {"AdjustmentType": "ExactCapacity", "StepAdjustments": [step(0, None, 0)]}
    assert stepped_capacity(configuration, 3, difference=0, above=False) == 0


@pytest.mark.parametrize(
    ("configuration", "match"),
    [
        ({"AdjustmentType": "ExactCapacity"}, "StepAdjustments and AdjustmentType"),
        ({"StepAdjustments": [step(1, 0)]}, "StepAdjustments and AdjustmentType"),
        (
            {"AdjustmentType": "ChangeInCapacity", "MinAdjustmentMagnitude": 1, "StepAdjustments": [step(1, 0)]},
            "only be specified with AdjustmentType PercentChangeInCapacity",
        ),
        ({"AdjustmentType": "ChangeInCapacity", "StepAdjustments": [step(1, 0, 10), step(2, 5)]}, "overlap"),
        ({"AdjustmentType": "ChangeInCapacity", "StepAdjustments": [step(1, 0, 5), step(2, 10)]}, "have a gap"),
        ({"AdjustmentType": "ChangeInCapacity", "StepAdjustments": [step(1, 5, 5)]}, "must be less than"),
    ],
)
def test_wrong_configurations_are_refused(configuration: dict[str, Any], match: str) -> None:
    """What the service would refuse does not pass here."""
    with pytest.raises(ValidationException, match=match):
        check_steps(configuration)
