"""Step policies that the service refuses."""

from __future__ import annotations

from typing import Any

import pytest

from local_aws.autoscaling.policies import check_steps
from local_aws.kit.errors import ValidationException


def step(adjustment: int, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """Return one step of a policy."""
    bounds = {"MetricIntervalLowerBound": low, "MetricIntervalUpperBound": high}
    return {"ScalingAdjustment": adjustment, **{key: value for key, value in bounds.items() if value is not None}}


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
    """A step policy that Application Auto Scaling would reject is rejected by the emulator, too."""
    with pytest.raises(ValidationException, match=match):
        check_steps(configuration)
