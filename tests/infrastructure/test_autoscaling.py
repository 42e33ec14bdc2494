"""Scaling of a multi-model endpoint's instances."""

from __future__ import annotations

from typing import Any

import pytest
from synthesis import make_catalog, make_stack, only, resources, template_of, waits_for

TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
ENDPOINT = "AWS::SageMaker::Endpoint"


def scaled(**scaling: Any) -> dict[str, Any]:
    """The template of a multi-model endpoint of 1 to 4 instances."""
    return template_of(make_stack(make_catalog(scaling={"min": 1, "max": 4, **scaling})))


def test_target_is_the_variants_number_of_instances() -> None:
    """The scaling target is registered after the endpoint is created, and deregistered before it is deleted."""
    template = scaled(schedule=[{"name": "day", "cron": "cron(0 8 ? * MON-FRI *)", "min": 2}])
    target_id, target = only(template, TARGET)
    properties = target["Properties"]
    assert properties["ResourceId"] == "endpoint/lmi-cohost/variant/AllTraffic"
    assert properties["ScalableDimension"] == "sagemaker:variant:DesiredInstanceCount"
    assert (properties["ServiceNamespace"], properties["MinCapacity"], properties["MaxCapacity"]) == ("sagemaker", 1, 4)
    assert [action["ScheduledActionName"] for action in properties["ScheduledActions"]] == ["day"]
    assert waits_for(template, target_id, only(template, ENDPOINT)[0])


@pytest.mark.parametrize(
    ("metric", "target", "predefined"),
    [
        ("invocations", 600, "SageMakerVariantInvocationsPerInstance"),
        ("concurrency", 8, "SageMakerVariantConcurrentRequestsPerModelHighResolution"),
    ],
)
def test_tracking_is_the_only_policy(metric: str, target: float, predefined: str) -> None:
    """A multi-model endpoint has only a target tracking policy, and none that wakes it."""
    template = scaled(metric=metric, target=target)
    _, policy = only(template, POLICY)
    assert policy["Properties"] == {
        "PolicyName": "tracking",
        "PolicyType": "TargetTrackingScaling",
        "ScalingTargetId": {"Ref": only(template, TARGET)[0]},
        "TargetTrackingScalingPolicyConfiguration": {
            "PredefinedMetricSpecification": {"PredefinedMetricType": predefined},
            "TargetValue": target,
            "ScaleInCooldown": 300,
            "ScaleOutCooldown": 60,
        },
    }


def test_calls_a_minute_are_tracked_by_default() -> None:
    """InvocationsPerInstance is the default metric of multi-model endpoints, as AWS recommends."""
    _, policy = only(scaled(), POLICY)
    tracking = policy["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    metric = tracking["PredefinedMetricSpecification"]["PredefinedMetricType"]
    assert (metric, tracking["TargetValue"]) == ("SageMakerVariantInvocationsPerInstance", 1000)


def test_update_keeps_the_number_of_instances_that_scaling_chose() -> None:
    """A deploy under load does not reset the number of instances that auto scaling has chosen."""
    _, endpoint = only(scaled(), ENDPOINT)
    assert endpoint["Properties"]["RetainAllVariantProperties"] is True


def test_nothing_scales_unless_asked(product: dict[str, Any]) -> None:
    """A catalog without `scaling` has no scaling target or policy, and each update sets its instance count."""
    assert resources(product, TARGET) == {}
    assert resources(product, POLICY) == {}
    assert "RetainAllVariantProperties" not in only(product, ENDPOINT)[1]["Properties"]
