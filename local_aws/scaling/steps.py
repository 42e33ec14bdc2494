"""Step scaling: which step an alarm's value falls on, and what capacity that makes.

Rules: Application Auto Scaling user guide, "Step scaling policies", and StepScalingPolicyConfiguration and
StepAdjustment of the API reference.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final

from local_aws.sagemaker.faults import ValidationException

if TYPE_CHECKING:
    from collections.abc import Mapping

_PERCENT: Final = "PercentChangeInCapacity"


def check_steps(configuration: Mapping[str, Any]) -> None:
    """Check a policy's configuration.

    Raises:
        ValidationException: it has no steps, no adjustment type, steps that overlap or leave a gap, or a smallest
            change where that means nothing.
    """
    steps = configuration.get("StepAdjustments") or []
    if not steps or configuration.get("AdjustmentType") is None:
        raise ValidationException("StepAdjustments and AdjustmentType must be specified for a StepScaling policy")
    if configuration.get("MinAdjustmentMagnitude") is not None and configuration["AdjustmentType"] != _PERCENT:
        raise ValidationException(f"MinAdjustmentMagnitude can only be specified with AdjustmentType {_PERCENT}")
    bounds = sorted(_bounds(step) for step in steps)
    for low, high in bounds:
        if low >= high:
            raise ValidationException(f"A step's lower bound {low} must be less than its upper bound {high}")
    for (_, high), (low, _) in itertools.pairwise(bounds):
        if high != low:
            what = "overlap" if high > low else "have a gap"
            raise ValidationException(f"StepAdjustments {what} between {high} and {low}")


def stepped_capacity(configuration: Mapping[str, Any], current: int, *, difference: float, above: bool) -> int | None:
    """The capacity that the fitting step asks for; None where no step fits.

    Args:
        configuration: the policy's.
        current: the capacity that is changed.
        difference: the metric's value less the alarm's threshold.
        above: whether the alarm watches for values above its threshold; it decides which bound belongs to a step.
    """
    for step in configuration["StepAdjustments"]:
        low, high = _bounds(step)
        if low <= difference < high if above else low < difference <= high:
            return _adjusted(configuration, current, step["ScalingAdjustment"])
    return None


def _bounds(step: Mapping[str, Any]) -> tuple[float, float]:
    low, high = step.get("MetricIntervalLowerBound"), step.get("MetricIntervalUpperBound")
    return -math.inf if low is None else float(low), math.inf if high is None else float(high)


def _adjusted(configuration: Mapping[str, Any], current: int, adjustment: int) -> int:
    kind = configuration["AdjustmentType"]
    if kind == "ExactCapacity":
        return adjustment
    if kind == "ChangeInCapacity":
        return current + adjustment
    change = current * adjustment / 100
    # Towards zero, but a change between -1 and 1 becomes a whole one.
    whole = math.trunc(change) or int(math.copysign(1, change)) if change else 0
    least = configuration.get("MinAdjustmentMagnitude") or 0
    if whole and abs(whole) < least:
        whole = int(math.copysign(least, whole))
    return current + whole
