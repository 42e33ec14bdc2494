"""The rules by which Application Auto Scaling changes a capacity: alarms of target tracking, steps and cooldowns.

The simulation (`cohost.forecast.simulation`) and the emulator (`local_aws.autoscaling`) both use these rules. A
capacity is a number of instances, or of copies of an inference component. Sources: Application Auto Scaling user guide,
the sections "How it works" and on cooldowns of "Target tracking scaling policies" and "Step scaling policies"; API
reference, StepScalingPolicyConfiguration and StepAdjustment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class TrackingAlarms(NamedTuple):
    """The numbers of consecutive datapoints after which the two alarms of target tracking enter ALARM.

    `above` is the number for the alarm on values above the target, which scales out; `below` is the number for the
    alarm on values below the target, which scales in.
    """

    above: int
    below: int


TRACKING_ALARMS: Final[Mapping[int, TrackingAlarms]] = {60: TrackingAlarms(3, 15), 10: TrackingAlarms(3, 90)}
"""The numbers of datapoints of the alarms, by the seconds between two datapoints of the metric.

The numbers for one datapoint per minute are documented. With one per ten seconds the service scales in "at the same
speed as it would for standard metrics" (SageMaker developer guide, high-resolution metrics); AWS's notebook on scaling
to zero states 90 such datapoints. In one observation an idle copy was removed after 11 minutes.
"""

PERIOD_S: Final[Mapping[str, int]] = {"invocations": 60, "concurrency": 10}
"""Seconds between two datapoints of a metric, by the value of the catalog's key `scaling.metric`."""

TAIL_MINUTES: Final[Mapping[str, int]] = {
    metric: TRACKING_ALARMS[period].below * period // 60 for metric, period in PERIOD_S.items()
}
"""Minutes below the target after which the alarm that scales in enters ALARM, by the name of the catalog's metric."""

ALARM_REPEAT_S: Final = 60
"""Seconds after which an alarm in ALARM triggers its scaling policy again (CloudWatch user guide: "Alarm actions")."""

LOW_SHARE: Final = 0.9
"""The share of the target below which the metric makes target tracking scale in."""

DEFAULT_COOLDOWN_S: Final = 300
"""The cooldown in seconds of a policy that states none, for variants and components and for either kind of policy."""

# In floating point, 3 times 0.1 is slightly above 0.3, which must not need 4 units of 0.1.
_NOISE: Final = 1e-9


def tracked_capacity(load: float, target: float) -> int:
    """Return the capacity, rounded up, at which a metric's total `load` is `target` per instance or copy."""
    return math.ceil(load / target - _NOISE)


def stepped_capacity(configuration: Mapping[str, Any], current: int, *, difference: float, above: bool) -> int | None:
    """Return the capacity that a step scaling policy sets; None if no step's interval contains `difference`.

    Args:
        configuration: a StepScalingPolicyConfiguration.
        current: the present capacity.
        difference: the metric's value less the alarm's threshold.
        above: True if the alarm is for values above its threshold. A step then includes its lower bound, else its upper
            bound.
    """
    for step in configuration["StepAdjustments"]:
        low, high = step_bounds(step)
        if low <= difference < high if above else low < difference <= high:
            return _adjusted(configuration, current, step["ScalingAdjustment"])
    return None


def step_bounds(step: Mapping[str, Any]) -> tuple[float, float]:
    """Return the lower and the upper bound of a StepAdjustment; a missing bound counts as infinite."""
    low, high = step.get("MetricIntervalLowerBound"), step.get("MetricIntervalUpperBound")
    return -math.inf if low is None else float(low), math.inf if high is None else float(high)


def _adjusted(configuration: Mapping[str, Any], current: int, adjustment: int) -> int:
    kind = configuration["AdjustmentType"]
    if kind == "ExactCapacity":
        return adjustment
    if kind == "ChangeInCapacity":
        return current + adjustment
    change = current * adjustment / 100
    # A change is rounded towards zero, but a change between -1 and 1 becomes -1 or 1.
    whole = math.trunc(change) or int(math.copysign(1, change)) if change else 0
    least = configuration.get("MinAdjustmentMagnitude") or 0
    if whole and abs(whole) < least:
        whole = int(math.copysign(least, whole))
    return current + whole


@dataclass
class Cooldowns:
    """The scale-out and the scale-in cooldown of a scalable target.

    `out_until` and `in_until` are the times at which the cooldowns end, in seconds of any clock.
    `base` is the capacity before the scale-out that began the present cooldown. If a policy scales out again during
    that cooldown, its new capacity is computed from `base`, so that capacity already added is not added twice.
    """

    out_until: float = 0.0
    in_until: float = 0.0
    base: int = 0

    def allowed(self, current: int, now: float, wanted_from: Callable[[int], int | None]) -> int | None:
        """Return the capacity that a policy may set now; None for no change.

        Args:
            current: the present capacity, including copies or instances that are still starting.
            now: the time of the decision, in seconds of the same clock.
            wanted_from: the function that returns the policy's new capacity for a given capacity, None for no change.
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
        """Begin the cooldown of a scale-out from capacity `before` at time `now`; end the scale-in cooldown."""
        if now >= self.out_until:
            self.base = before
        self.out_until, self.in_until = until, 0.0
