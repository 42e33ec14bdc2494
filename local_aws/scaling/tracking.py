"""Target tracking: the two alarms that a policy gets, and the capacity that brings the metric back to its target.

Metrics: AWS, "Amazon SageMaker AI metrics in Amazon CloudWatch", and PredefinedMetricSpecification of the API
reference. An alarm above the target over 3 periods, one below nine tenths of it over 15 minutes: that is what the
service makes of a metric with a value a minute. For metrics with a value each 10 s the windows are inferred: 3 values
up, and 10 minutes down, which agrees with the 11 minutes after which an idle copy was seen to go.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from local_aws.sagemaker.faults import ValidationException
from local_aws.scaling.capacity import Component, Scalable, Variant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.scaling.records import Policy

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
