"""Scaling policies, step and target tracking: their checks, their alarms, and the capacity that they ask for.

Rules: Application Auto Scaling user guide, "Step scaling policies" and "Target tracking scaling policies", how they
work and their cooldowns; StepScalingPolicyConfiguration, StepAdjustment and PredefinedMetricSpecification of the API
reference, and PutScalingPolicy for several policies at once. Metrics: AWS, "Amazon SageMaker AI metrics in Amazon
CloudWatch".

An alarm above the target over 3 periods, one below nine tenths of it over 15 minutes: that is what the service makes of
a metric with a value per minute. For metrics with a value each 10 s the windows are inferred: 3 values up, and 10
minutes down, which agrees with the 11 minutes after which an idle copy was seen to go.
"""

from __future__ import annotations

import functools
import itertools
import math
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from local_aws.autoscaling.state import Cooldown
from local_aws.autoscaling.targets import Component, ScalableResource, Variant
from local_aws.kit.errors import ValidationException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from local_aws.autoscaling.scaling_activities import Scaler
    from local_aws.autoscaling.state import Policy, ScalableTarget, ScalableTargets
    from local_aws.kit.alarm_actions import AlarmsInAlarm, AlarmTrigger
    from local_aws.kit.clock import Clock


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
    """Return the capacity that the fitting step asks for; None where no step fits.

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


_LOW_SHARE: Final = 0.9
# Three tenths times ten is a little more than three to a computer; that must not become four.
_NOISE: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class Predefined:
    """A predefined metric: the kind of resource that has it, and how its alarms read it (period in seconds)."""

    kind: type[ScalableResource]
    metric: str
    statistic: str
    period: int


PREDEFINED: Final = {
    "SageMakerVariantInvocationsPerInstance": Predefined(
        kind=Variant, metric="InvocationsPerInstance", statistic="Sum", period=60
    ),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": Predefined(
        kind=Variant, metric="ConcurrentRequestsPerModel", statistic="Maximum", period=10
    ),
    "SageMakerInferenceComponentInvocationsPerCopy": Predefined(
        kind=Component, metric="InvocationsPerCopy", statistic="Sum", period=60
    ),
    "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution": Predefined(
        kind=Component, metric="ConcurrentRequestsPerCopy", statistic="Maximum", period=10
    ),
}
_WINDOWS: Final = {60: (3, 15), 10: (3, 60)}


def check_tracking(resource: ScalableResource, configuration: Mapping[str, Any]) -> None:
    """Check a policy's configuration.

    Raises:
        ValidationException: it names no metric or two, or one that is not of this kind of resource.
    """
    named = [
        name
        for name in ("PredefinedMetricSpecification", "CustomizedMetricSpecification")
        if configuration.get(name) is not None
    ]
    if len(named) != 1:
        raise ValidationException(
            "You must specify exactly one of PredefinedMetricSpecification and CustomizedMetricSpecification in "
            "TargetTrackingScalingPolicyConfiguration"
        )
    if named[0] == "CustomizedMetricSpecification":
        return
    kind = configuration["PredefinedMetricSpecification"]["PredefinedMetricType"]
    fitting = [name for name, one in PREDEFINED.items() if isinstance(resource, one.kind)]
    if kind not in fitting:
        raise ValidationException(
            f"PredefinedMetricType {kind} cannot be used with scalable dimension {resource.dimension}; "
            f"use one of {', '.join(fitting)}"
        )


def alarms_of(resource: ScalableResource, policy: Policy) -> tuple[dict[str, Any], dict[str, Any]]:
    """Define the two alarms as PutMetricAlarm takes them: the one above, then the one below."""
    metric = _metric(resource, policy.configuration)
    period = metric.get("Period", 60)
    high, low = _WINDOWS[period]
    target = policy.configuration["TargetValue"]
    return (
        _alarm(resource, policy, metric, "AlarmHigh", "GreaterThanThreshold", high, target),
        _alarm(resource, policy, metric, "AlarmLow", "LessThanThreshold", low, target * _LOW_SHARE),
    )


def wanted_capacity(current: int, value: float, target: float) -> int:
    """Return the capacity at which a metric of `value` per unit of `current` would be at its target, rounded up."""
    return math.ceil(current * value / target - _NOISE)


def _alarm(
    resource: ScalableResource,
    policy: Policy,
    metric: Mapping[str, Any],
    side: str,
    comparison: str,
    periods: int,
    threshold: float,
) -> dict[str, Any]:
    return {
        **metric,
        "AlarmName": f"TargetTracking-{resource.resource_id}-{side}-{uuid.uuid4()}",
        "AlarmDescription": f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {policy.arn}.",
        "ActionsEnabled": True,
        "AlarmActions": [policy.action],
        "ComparisonOperator": comparison,
        "EvaluationPeriods": periods,
        "Threshold": threshold,
    }


def _metric(resource: ScalableResource, configuration: Mapping[str, Any]) -> dict[str, Any]:
    if (custom := configuration.get("CustomizedMetricSpecification")) is None:
        predefined = PREDEFINED[configuration["PredefinedMetricSpecification"]["PredefinedMetricType"]]
        dimensions = [{"Name": name, "Value": value} for name, value in resource.dimensions.items()]
        return {
            "Namespace": "AWS/SageMaker",
            "MetricName": predefined.metric,
            "Dimensions": dimensions,
            "Statistic": predefined.statistic,
            "Period": predefined.period,
        }
    if custom.get("Metrics"):
        return {"Metrics": [_query(query) for query in custom["Metrics"]]}
    kept = ("Namespace", "MetricName", "Dimensions", "Statistic", "Unit")
    return {**{name: custom[name] for name in kept if custom.get(name) is not None}, "Period": 60}


def _query(query: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a query of the policy into an alarm's, which states its period."""
    if (stat := query.get("MetricStat")) is None:
        return dict(query)
    return {**query, "MetricStat": {**stat, "Period": 60}}


# For SageMaker's variants and components, of either kind of policy (API reference).
_DEFAULT_COOLDOWN_S: Final = 300


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The capacity that a policy asks for, and the cause in the words of an activity."""

    wanted: int
    policy: Policy
    cause: str


class Policies:
    """Turns triggers of alarms into changes of capacities.

    Args:
        targets: the scalable targets with their policies.
        in_alarm: lists those of some alarms that are in ALARM.
        scaler: changes capacities.
        clock: for cooldowns.
    """

    def __init__(self, targets: ScalableTargets, in_alarm: AlarmsInAlarm, scaler: Scaler, clock: Clock) -> None:
        self._targets = targets
        self._in_alarm = in_alarm
        self._scaler = scaler
        self._clock = clock

    async def act(self, triggers: Iterable[AlarmTrigger]) -> None:
        """Apply the policies that alarms triggered at one time; of several proposals for a target the largest wins."""
        by_target: dict[int, tuple[ScalableTarget, list[tuple[Policy, AlarmTrigger]]]] = {}
        for trigger in triggers:
            if (found := self._targets.of_action(trigger.action)) is not None:
                target, policy = found
                by_target.setdefault(id(target), (target, []))[1].append((policy, trigger))
        for target, triggered in by_target.values():
            # What cannot be done now is triggered again, as long as the alarm lasts.
            if target.activity is None:
                await self._decide(target, triggered)

    async def _decide(self, target: ScalableTarget, triggered: Sequence[tuple[Policy, AlarmTrigger]]) -> None:
        found = await self._scaler.capacity(target)
        if found is None or target.activity is not None:
            return
        current = found.count
        target.note_capacity(current, self._clock.now())
        proposals = [self._proposal(target, policy, trigger, current) for policy, trigger in triggered]
        largest = max(filter(None, proposals), key=lambda proposal: proposal.wanted, default=None)
        if largest is not None:
            self._begin(target, largest, current)

    def _proposal(self, target: ScalableTarget, policy: Policy, trigger: AlarmTrigger, current: int) -> Proposal | None:
        wanted_from = functools.partial(self._wanted, target, policy, trigger)
        wanted = self._after_cooldowns(target, current, wanted_from)
        if wanted is None or wanted == current:
            return None
        if wanted < current and not self._is_about_present(target, trigger):
            return None
        side = "DynamicScalingOutSuspended" if wanted > current else "DynamicScalingInSuspended"
        if target.suspended.get(side):
            return None
        cause = f"monitor alarm {trigger.alarm} in state {trigger.state} triggered policy {policy.name}"
        return Proposal(wanted=wanted, policy=policy, cause=cause)

    def _after_cooldowns(
        self, target: ScalableTarget, current: int, wanted_from: Callable[[int], int | None]
    ) -> int | None:
        """Return the wanted capacity with regard to the cooldowns; None for no change.

        While the scale-out cooldown lasts, the capacity that was added counts as part of what is wanted now; while the
        scale-in cooldown lasts nothing shrinks, but it may grow.
        """
        now = self._clock.now()
        growing = now < target.cooldown_out.until
        wanted = wanted_from(current)
        if wanted is not None and wanted > current and growing:
            wanted = wanted_from(target.cooldown_out.before)
            if wanted is None or wanted <= current:
                return None
        if wanted is not None and wanted < current and now < target.cooldown_in.until:
            return None
        return wanted

    def _wanted(self, target: ScalableTarget, policy: Policy, trigger: AlarmTrigger, base: int) -> int | None:
        wanted = self._tracked(target, policy, trigger, base) if policy.tracks else _stepped(policy, trigger, base)
        return None if wanted is None else target.within(wanted)

    def _tracked(self, target: ScalableTarget, policy: Policy, trigger: AlarmTrigger, base: int) -> int | None:
        if base == 0 or not trigger.values:
            return None
        wanted = wanted_capacity(base, trigger.values[-1], policy.configuration["TargetValue"])
        high, low = policy.alarms
        if trigger.alarm == high:
            return max(wanted, base)
        if trigger.alarm == low and policy.scales_in and self._all_low(target):
            return min(wanted, base)
        return None

    def _is_about_present(self, target: ScalableTarget, trigger: AlarmTrigger) -> bool:
        """Tell whether an alarm of too much capacity evaluated the present capacity only.

        Periods before a time at zero are about a capacity that is gone. On the service starting takes so long that they
        are no longer evaluated; here a second is enough, and a copy that has just started would be taken away again.
        """
        return self._clock.now() >= target.above_zero_since + trigger.evaluated_s

    def _all_low(self, target: ScalableTarget) -> bool:
        """Tell whether all tracking policies that may scale in would (user guide: "Multiple target tracking")."""
        lows = [policy.alarms[1] for policy in target.policies.values() if policy.tracks and policy.scales_in]
        return len(self._in_alarm(lows)) == len(lows)

    def _begin(self, target: ScalableTarget, proposal: Proposal, current: int) -> None:
        self._scaler.begin(
            target,
            proposal.wanted,
            proposal.cause,
            done=lambda: self._begin_cooldown(target, proposal, current),
        )

    def _begin_cooldown(self, target: ScalableTarget, proposal: Proposal, before: int) -> None:
        """Begin the cooldown; scaling out ends the cooldown of scaling in."""
        target.note_capacity(before, self._clock.now())
        target.note_capacity(proposal.wanted, self._clock.now())
        out, configuration = proposal.wanted > before, proposal.policy.configuration
        name = ("ScaleOutCooldown" if out else "ScaleInCooldown") if proposal.policy.tracks else "Cooldown"
        cooldown = Cooldown(until=self._clock.now() + configuration.get(name, _DEFAULT_COOLDOWN_S), before=before)
        if out:
            target.cooldown_out, target.cooldown_in = cooldown, Cooldown()
        else:
            target.cooldown_in = cooldown


def _stepped(policy: Policy, trigger: AlarmTrigger, base: int) -> int | None:
    """Return what a step policy asks for. Without a single value the difference is taken as none (inferred)."""
    values, threshold = trigger.values, trigger.threshold
    aggregated = {
        "Minimum": min(values, default=threshold),
        "Maximum": max(values, default=threshold),
        "Average": sum(values) / len(values) if values else threshold,
    }[policy.configuration.get("MetricAggregationType", "Average")]
    return stepped_capacity(policy.configuration, base, difference=aggregated - threshold, above=trigger.watches_above)
