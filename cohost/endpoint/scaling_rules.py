"""The rules of Application Auto Scaling: alarms of target tracking, capacities, steps and cooldowns.

The simulation (`cohost.forecast.simulation`) and the emulator (`local_aws.autoscaling`) both use them. Sources:
Application Auto Scaling user guide, "Target tracking scaling policies" and "Step scaling policies", how they work and
their cooldowns; StepScalingPolicyConfiguration and StepAdjustment of the API reference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class TrackingAlarms(NamedTuple):
    """The numbers of consecutive datapoints after which the two alarms of target tracking enter ALARM."""

    above: int
    below: int


TRACKING_ALARMS: Final[Mapping[int, TrackingAlarms]] = {60: TrackingAlarms(3, 15), 10: TrackingAlarms(3, 90)}
"""The alarms by the seconds between two values of the metric.

Those with one value per minute are documented. With one value per ten seconds the service scales in "at the same speed
as it would for standard metrics" (SageMaker developer guide, high-resolution metrics); AWS's notebook on scaling to
zero states 90 such values. In one observation an idle copy was removed after 11 minutes.
"""

PERIOD_S: Final[Mapping[str, int]] = {"invocations": 60, "concurrency": 10}
"""Seconds between two values of each metric of a catalog."""

TAIL_MINUTES: Final[Mapping[str, int]] = {
    metric: TRACKING_ALARMS[period].below * period // 60 for metric, period in PERIOD_S.items()
}
"""Minutes below the target after which the alarm of each metric enters ALARM."""

ALARM_REPEAT_S: Final = 60
"""A policy is triggered again after this time for as long as the alarm lasts (CloudWatch user guide: "Alarm actions").
"""

LOW_SHARE: Final = 0.9
"""The share of the target below which capacity is too much."""

DEFAULT_COOLDOWN_S: Final = 300
"""Of variants and components, for either kind of policy, where the policy states none."""

# In floating point, 0.3 times 10 can be slightly above 3, which must not round up to 4.
_NOISE: Final = 1e-9


def tracked_capacity(load: float, target: float) -> int:
    """Return the capacity at which a metric that sums up to `load` over all of it is at its target, rounded up."""
    return math.ceil(load / target - _NOISE)


def stepped_capacity(configuration: Mapping[str, Any], current: int, *, difference: float, above: bool) -> int | None:
    """Return the capacity by the step that fits; None if no step fits.

    Args:
        configuration: a StepScalingPolicyConfiguration.
        current: the capacity that is changed.
        difference: the metric's value less the alarm's threshold.
        above: true if values above the threshold are in alarm; then the threshold belongs to the step above it.
    """
    for step in configuration["StepAdjustments"]:
        low, high = step_bounds(step)
        if low <= difference < high if above else low < difference <= high:
            return _adjusted(configuration, current, step["ScalingAdjustment"])
    return None


def step_bounds(step: Mapping[str, Any]) -> tuple[float, float]:
    """Return the bounds of a StepAdjustment; one that is left out is infinite."""
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


@dataclass
class Cooldowns:
    """The cooldowns of a scalable target, in seconds of any clock.

    `base` is the capacity before the scale-out that began the cooldown in effect: what was added since counts as part
    of what a later decision adds, so that only a larger scale-out adds more.
    """

    out_until: float = 0.0
    in_until: float = 0.0
    base: int = 0

    def allowed(self, current: int, now: float, wanted_from: Callable[[int], int | None]) -> int | None:
        """Return the capacity that a policy may set now; None for no change.

        Args:
            current: the capacity, including copies or instances that are still starting.
            now: the time of the decision.
            wanted_from: returns the capacity that the policy computes from a given capacity.
        """
        wanted = wanted_from(current)
        if wanted is None or wanted == current:
            return None
        if wanted < current:
            return None if now < self.in_until else wanted
        if now < self.out_until:
            wanted = wanted_from(self.base)
        return None if wanted is None or wanted <= current else wanted

    def begin_out(self, before: int, now: float, until: float) -> None:
        """Begin the cooldown of a scale-out from `before` that was decided `now`; it ends that of scaling in."""
        if now >= self.out_until:
            self.base = before
        self.out_until, self.in_until = until, 0.0
