"""Scaling policies, step and target tracking: their checks, their alarms, and the capacity that they request.

The module `cohost.endpoint.scaling_rules` contains the scaling rules. Sources: the API reference of
PredefinedMetricSpecification and, for several policies on one target, of PutScalingPolicy. Source of the metrics: AWS,
"Amazon SageMaker AI metrics in Amazon CloudWatch".
"""

from __future__ import annotations

import functools
import itertools
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cohost.endpoint.scaling_rules import (
    DEFAULT_COOLDOWN_S,
    LOW_SHARE,
    TRACKING_ALARMS,
    step_bounds,
    stepped_capacity,
    tracked_capacity,
)
from local_aws.autoscaling.targets import Component, ScalableResource, Variant
from local_aws.kit.errors import ValidationException

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from local_aws.autoscaling.scaling_activities import Scaler
    from local_aws.autoscaling.state import Policy, ScalableTarget, ScalableTargets
    from local_aws.kit.alarm_actions import AlarmsInAlarm, AlarmTrigger
    from local_aws.kit.clock import Clock


_PERCENT: Final = "PercentChangeInCapacity"


def check_steps(configuration: Mapping[str, Any]) -> None:
    """Check the configuration of a step scaling policy.

    Raises:
        ValidationException: the configuration has no steps, no adjustment type, steps that overlap or leave a gap, or
            a MinAdjustmentMagnitude with an AdjustmentType other than PercentChangeInCapacity.
    """
    steps = configuration.get("StepAdjustments") or []
    if not steps or configuration.get("AdjustmentType") is None:
        raise ValidationException("StepAdjustments and AdjustmentType must be specified for a StepScaling policy")
    if configuration.get("MinAdjustmentMagnitude") is not None and configuration["AdjustmentType"] != _PERCENT:
        raise ValidationException(f"MinAdjustmentMagnitude can only be specified with AdjustmentType {_PERCENT}")
    bounds = sorted(step_bounds(step) for step in steps)
    for low, high in bounds:
        if low >= high:
            raise ValidationException(f"A step's lower bound {low} must be less than its upper bound {high}")
    for (_, high), (low, _) in itertools.pairwise(bounds):
        if high != low:
            what = "overlap" if high > low else "have a gap"
            raise ValidationException(f"StepAdjustments {what} between {high} and {low}")


@dataclass(frozen=True, kw_only=True)
class Predefined:
    """A predefined metric: the kind of resource that has it, and the statistic and period (seconds) of its alarms."""

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


def check_tracking(resource: ScalableResource, configuration: Mapping[str, Any]) -> None:
    """Check the configuration of a target tracking policy.

    Raises:
        ValidationException: the configuration names no metric or two metrics, or a predefined metric of another kind
            of resource.
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
    """Return the two alarms of a target tracking policy as PutMetricAlarm takes them: AlarmHigh, then AlarmLow."""
    metric = _metric(resource, policy.configuration)
    period = metric.get("Period", 60)
    high, low = TRACKING_ALARMS[period]
    target = policy.configuration["TargetValue"]
    return (
        _alarm(resource, policy, metric, "AlarmHigh", "GreaterThanThreshold", high, target),
        _alarm(resource, policy, metric, "AlarmLow", "LessThanThreshold", low, target * LOW_SHARE),
    )


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
    """Convert a metric query of a policy into a metric query of an alarm by adding the period."""
    if (stat := query.get("MetricStat")) is None:
        return dict(query)
    return {**query, "MetricStat": {**stat, "Period": 60}}


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The capacity that a policy requests, and the reason as the text `Cause` of the scaling activity."""

    wanted: int
    policy: Policy
    cause: str


class Policies:
    """Changes the capacities of scalable targets when alarms trigger the targets' scaling policies.

    Args:
        targets: the scalable targets with their policies.
        in_alarm: returns those of the given alarm names that are in ALARM.
        scaler: changes capacities.
        clock: the clock of the cooldowns.
    """

    def __init__(self, targets: ScalableTargets, in_alarm: AlarmsInAlarm, scaler: Scaler, clock: Clock) -> None:
        self._targets = targets
        self._in_alarm = in_alarm
        self._scaler = scaler
        self._clock = clock

    async def act(self, triggers: Iterable[AlarmTrigger]) -> None:
        """Apply the policies whose alarms fired at the same time; each target gets the largest of their capacities."""
        by_target: dict[int, tuple[ScalableTarget, list[tuple[Policy, AlarmTrigger]]]] = {}
        for trigger in triggers:
            if (found := self._targets.of_action(trigger.action)) is not None:
                target, policy = found
                by_target.setdefault(id(target), (target, []))[1].append((policy, trigger))
        for target, triggered in by_target.values():
            # A trigger during a scaling activity is dropped. The alarm triggers the policy again as long as it lasts.
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
        wanted = target.cooldowns.allowed(current, self._clock.now(), wanted_from)
        if wanted is None:
            return None
        if wanted < current and not self._is_about_present(target, trigger):
            return None
        side = "DynamicScalingOutSuspended" if wanted > current else "DynamicScalingInSuspended"
        if target.suspended.get(side):
            return None
        cause = f"monitor alarm {trigger.alarm} in state {trigger.state} triggered policy {policy.name}"
        return Proposal(wanted=wanted, policy=policy, cause=cause)

    def _wanted(self, target: ScalableTarget, policy: Policy, trigger: AlarmTrigger, base: int) -> int | None:
        wanted = self._tracked(target, policy, trigger, base) if policy.tracks else _stepped(policy, trigger, base)
        return None if wanted is None else target.within(wanted)

    def _tracked(self, target: ScalableTarget, policy: Policy, trigger: AlarmTrigger, base: int) -> int | None:
        if base == 0 or not trigger.values:
            return None
        wanted = tracked_capacity(base * trigger.values[-1], policy.configuration["TargetValue"])
        high, low = policy.alarms
        if trigger.alarm == high:
            return max(wanted, base)
        if trigger.alarm == low and policy.scales_in and self._all_low(target):
            return min(wanted, base)
        return None

    def _is_about_present(self, target: ScalableTarget, trigger: AlarmTrigger) -> bool:
        """Return True if an alarm evaluated no period before the target's capacity last rose above zero.

        Metrics of earlier periods describe instances or copies that no longer exist. On AWS a new copy starts so slowly
        that the alarm no longer evaluates these periods. In the emulator a copy starts within a second, and the old
        metrics would remove the new copy again.
        """
        return self._clock.now() >= target.above_zero_since + trigger.evaluated_s

    def _all_low(self, target: ScalableTarget) -> bool:
        """Return True if every tracking policy that is allowed to scale in has its AlarmLow in the state ALARM.

        Source: Application Auto Scaling user guide, "Multiple target tracking".
        """
        lows = [policy.alarms[1] for policy in target.policies.values() if policy.tracks and policy.scales_in]
        return len(self._in_alarm(lows)) == len(lows)

    def _begin(self, target: ScalableTarget, proposal: Proposal, current: int) -> None:
        begin_cooldown = functools.partial(self._begin_cooldown, target, proposal, current, self._clock.now())
        self._scaler.begin(target, proposal.wanted, proposal.cause, done=begin_cooldown)

    def _begin_cooldown(self, target: ScalableTarget, proposal: Proposal, before: int, decided: float) -> None:
        now = self._clock.now()
        target.note_capacity(before, now)
        target.note_capacity(proposal.wanted, now)
        out, configuration = proposal.wanted > before, proposal.policy.configuration
        name = ("ScaleOutCooldown" if out else "ScaleInCooldown") if proposal.policy.tracks else "Cooldown"
        until = now + configuration.get(name, DEFAULT_COOLDOWN_S)
        if out:
            target.cooldowns.begin_out(before, decided, until)
        else:
            target.cooldowns.in_until = until


def _stepped(policy: Policy, trigger: AlarmTrigger, base: int) -> int | None:
    """Return the capacity that a step policy requests; a metric without values counts as its threshold (inferred)."""
    values, threshold = trigger.values, trigger.threshold
    aggregated = {
        "Minimum": min(values, default=threshold),
        "Maximum": max(values, default=threshold),
        "Average": sum(values) / len(values) if values else threshold,
    }[policy.configuration.get("MetricAggregationType", "Average")]
    return stepped_capacity(policy.configuration, base, difference=aggregated - threshold, above=trigger.watches_above)
