"""Scaling policies, step and target tracking: their checks, their alarms, and the capacity that they ask for.

Rules: Application Auto Scaling user guide, "Step scaling policies", and StepScalingPolicyConfiguration and
StepAdjustment of the API reference.

Metrics: AWS, "Amazon SageMaker AI metrics in Amazon CloudWatch", and PredefinedMetricSpecification of the API
reference. An alarm above the target over 3 periods, one below nine tenths of it over 15 minutes: that is what the
service makes of a metric with a value a minute. For metrics with a value each 10 s the windows are inferred: 3 values
up, and 10 minutes down, which agrees with the 11 minutes after which an idle copy was seen to go.

Rules: Application Auto Scaling user guide, "Step scaling policies" and "Target tracking scaling policies", how they
work and their cooldowns; PutScalingPolicy of the API reference for several policies at once.
"""

from __future__ import annotations

import functools
import itertools
import math
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from local_aws.autoscaling.state import Rest
from local_aws.autoscaling.targets import Component, Scalable, Variant
from local_aws.kit.errors import ValidationException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from local_aws.autoscaling.scaling_activities import Scaler
    from local_aws.autoscaling.state import Policy, Registry, Target
    from local_aws.cloudwatch.alarms import Alarms, Trigger
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


_LOW_SHARE: Final = 0.9
# Three tenths times ten is a little more than three to a computer; that must not become four.
_NOISE: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class Predefined:
    """A metric that a policy names by one word: whose it is, and how its alarms read it (period in seconds)."""

    kind: type[Scalable]
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


def check_tracking(scalable: Scalable, configuration: Mapping[str, Any]) -> None:
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
    fitting = [name for name, one in PREDEFINED.items() if isinstance(scalable, one.kind)]
    if kind not in fitting:
        raise ValidationException(
            f"PredefinedMetricType {kind} cannot be used with scalable dimension {scalable.dimension}; "
            f"use one of {', '.join(fitting)}"
        )


def alarms_of(scalable: Scalable, policy: Policy) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two alarms as PutMetricAlarm takes them: the one above, then the one below."""
    metric = _metric(scalable, policy.configuration)
    period = metric.get("Period", 60)
    high, low = _WINDOWS[period]
    target = policy.configuration["TargetValue"]
    return (
        _alarm(scalable, policy, metric, "AlarmHigh", "GreaterThanThreshold", high, target),
        _alarm(scalable, policy, metric, "AlarmLow", "LessThanThreshold", low, target * _LOW_SHARE),
    )


def wanted_capacity(current: int, value: float, target: float) -> int:
    """The capacity at which a metric of `value` for each unit of `current` would be at its target, rounded up."""
    return math.ceil(current * value / target - _NOISE)


def _alarm(
    scalable: Scalable,
    policy: Policy,
    metric: Mapping[str, Any],
    side: str,
    comparison: str,
    periods: int,
    threshold: float,
) -> dict[str, Any]:
    return {
        **metric,
        "AlarmName": f"TargetTracking-{scalable.resource_id}-{side}-{uuid.uuid4()}",
        "AlarmDescription": f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {policy.arn}.",
        "ActionsEnabled": True,
        "AlarmActions": [policy.action],
        "ComparisonOperator": comparison,
        "EvaluationPeriods": periods,
        "Threshold": threshold,
    }


def _metric(scalable: Scalable, configuration: Mapping[str, Any]) -> dict[str, Any]:
    if (custom := configuration.get("CustomizedMetricSpecification")) is None:
        predefined = PREDEFINED[configuration["PredefinedMetricSpecification"]["PredefinedMetricType"]]
        dimensions = [{"Name": name, "Value": value} for name, value in scalable.dimensions.items()]
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
    """A query of the policy as an alarm has it, which states its period."""
    if (stat := query.get("MetricStat")) is None:
        return dict(query)
    return {**query, "MetricStat": {**stat, "Period": 60}}


# For SageMaker's variants and components, of either kind of policy (API reference).
_DEFAULT_COOLDOWN_S: Final = 300


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The capacity that a policy asks for, and what made it ask."""

    wanted: int
    policy: Policy
    cause: str


class Policies:
    """Turns triggers of alarms into changes of capacities."""

    def __init__(self, registry: Registry, alarms: Alarms, scaler: Scaler, clock: Clock) -> None:
        self._registry = registry
        self._alarms = alarms
        self._scaler = scaler
        self._clock = clock

    async def act(self, triggers: Iterable[Trigger]) -> None:
        """Act on what alarms said at one time; of several proposals for a target the largest capacity wins."""
        by_target: dict[int, tuple[Target, list[tuple[Policy, Trigger]]]] = {}
        for trigger in triggers:
            if (found := self._registry.of_action(trigger.action)) is not None:
                target, policy = found
                by_target.setdefault(id(target), (target, []))[1].append((policy, trigger))
        for target, told in by_target.values():
            # What cannot be done now is asked for again, as long as the alarm lasts.
            if target.under_way is None:
                await self._decide(target, told)

    async def _decide(self, target: Target, told: Sequence[tuple[Policy, Trigger]]) -> None:
        found = await self._scaler.capacity(target)
        if found is None or target.under_way is not None:
            return
        current = found.count
        target.notice(current, self._clock.now())
        proposals = [self._proposal(target, policy, trigger, current) for policy, trigger in told]
        largest = max(filter(None, proposals), key=lambda proposal: proposal.wanted, default=None)
        if largest is not None:
            self._begin(target, largest, current)

    def _proposal(self, target: Target, policy: Policy, trigger: Trigger, current: int) -> Proposal | None:
        wish = functools.partial(self._wish, target, policy, trigger)
        wanted = self._after_cooldowns(target, current, wish)
        if wanted is None or wanted == current:
            return None
        if wanted < current and not self._is_founded(target, trigger):
            return None
        side = "DynamicScalingOutSuspended" if wanted > current else "DynamicScalingInSuspended"
        if target.suspended.get(side):
            return None
        cause = f"monitor alarm {trigger.alarm.name} in state {trigger.alarm.state} triggered policy {policy.name}"
        return Proposal(wanted=wanted, policy=policy, cause=cause)

    def _after_cooldowns(self, target: Target, current: int, wish: Callable[[int], int | None]) -> int | None:
        """What is wanted, with regard to the cooldowns; None for nothing.

        While the one of growing lasts, what was added counts as part of what is wanted now; while the one of
        shrinking lasts nothing shrinks, but it may grow.
        """
        now = self._clock.now()
        growing = now < target.rest_out.until
        wanted = wish(current)
        if wanted is not None and wanted > current and growing:
            wanted = wish(target.rest_out.before)
            if wanted is None or wanted <= current:
                return None
        if wanted is not None and wanted < current and now < target.rest_in.until:
            return None
        return wanted

    def _wish(self, target: Target, policy: Policy, trigger: Trigger, base: int) -> int | None:
        wanted = self._tracked(target, policy, trigger, base) if policy.tracks else _stepped(policy, trigger, base)
        return None if wanted is None else target.within(wanted)

    def _tracked(self, target: Target, policy: Policy, trigger: Trigger, base: int) -> int | None:
        if base == 0 or not trigger.values:
            return None
        wanted = wanted_capacity(base, trigger.values[-1], policy.configuration["TargetValue"])
        high, low = policy.alarms
        if trigger.alarm.name == high:
            return max(wanted, base)
        if trigger.alarm.name == low and policy.scales_in and self._all_low(target):
            return min(wanted, base)
        return None

    def _is_founded(self, target: Target, trigger: Trigger) -> bool:
        """Whether what an alarm says of too much capacity is said of the capacity that there is.

        What was before a time at zero is not. On the service starting takes so long that it is no longer looked at;
        here a second is enough, and what has just been woken would be put to sleep again.
        """
        alarm = trigger.alarm
        return self._clock.now() >= target.woken + alarm.rule.periods * alarm.period

    def _all_low(self, target: Target) -> bool:
        """Whether every tracking policy that may scale in is ready to (user guide: "Multiple target tracking")."""
        lows = [policy.alarms[1] for policy in target.policies.values() if policy.tracks and policy.scales_in]
        return len(self._alarms.in_alarm(lows)) == len(lows)

    def _begin(self, target: Target, proposal: Proposal, current: int) -> None:
        self._scaler.begin(
            target,
            proposal.wanted,
            proposal.cause,
            done=lambda: self._rest(target, proposal, current),
        )

    def _rest(self, target: Target, proposal: Proposal, before: int) -> None:
        """Begin the cooldown; growing ends that of shrinking."""
        target.notice(before, self._clock.now())
        target.notice(proposal.wanted, self._clock.now())
        out, configuration = proposal.wanted > before, proposal.policy.configuration
        name = ("ScaleOutCooldown" if out else "ScaleInCooldown") if proposal.policy.tracks else "Cooldown"
        rest = Rest(until=self._clock.now() + configuration.get(name, _DEFAULT_COOLDOWN_S), before=before)
        if out:
            target.rest_out, target.rest_in = rest, Rest()
        else:
            target.rest_in = rest


def _stepped(policy: Policy, trigger: Trigger, base: int) -> int | None:
    """What a step policy asks for. Without a single value the difference is taken as none (inferred)."""
    values, rule = trigger.values, trigger.alarm.rule
    aggregated = {
        "Minimum": min(values, default=rule.threshold),
        "Maximum": max(values, default=rule.threshold),
        "Average": sum(values) / len(values) if values else rule.threshold,
    }[policy.configuration.get("MetricAggregationType", "Average")]
    above = rule.comparison.startswith("Greater")
    return stepped_capacity(policy.configuration, base, difference=aggregated - rule.threshold, above=above)
