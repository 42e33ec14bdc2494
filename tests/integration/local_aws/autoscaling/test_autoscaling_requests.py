"""Application Auto Scaling's operations through boto3, on an endpoint of fake containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from local_aws.testing.scaling_stage import COMPONENT, VARIANT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local_aws.kit.clients import Clients

pytestmark = pytest.mark.process

STEP = {
    "AdjustmentType": "ChangeInCapacity",
    "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}],
}


@pytest.fixture
def scaling(clients: Clients, endpoint: None) -> Iterator[Any]:  # noqa: ARG001 - what is scaled
    """The client, with component `c` registered for 0 to 4 copies; nothing is registered afterwards."""
    client = clients.get("application-autoscaling")
    client.register_scalable_target(**COMPONENT, MinCapacity=0, MaxCapacity=4)
    yield client
    for target in client.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]:
        names = ("ServiceNamespace", "ResourceId", "ScalableDimension")
        client.deregister_scalable_target(**{name: target[name] for name in names})
    assert clients.get("cloudwatch").describe_alarms(AlarmNamePrefix="TargetTracking")["MetricAlarms"] == []


def tracking(metric: str = "SageMakerInferenceComponentInvocationsPerCopy") -> dict[str, Any]:
    """The arguments of a tracking policy `t`."""
    configuration = {"TargetValue": 70.0, "PredefinedMetricSpecification": {"PredefinedMetricType": metric}}
    kind = {"PolicyName": "t", "PolicyType": "TargetTrackingScaling"}
    return {**kind, "TargetTrackingScalingPolicyConfiguration": configuration}


def test_a_target_is_described_and_its_bounds_hold(
    scaling: Any, component: Callable[[], Any], wait: Callable[..., None]
) -> None:
    """New bounds of a target change the copies at once; the activity has the reason."""
    arn = scaling.register_scalable_target(**COMPONENT, MinCapacity=2, Tags={"a": "b"})["ScalableTargetARN"]
    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert (target["MinCapacity"], target["MaxCapacity"], target["ScalableTargetARN"]) == (2, 4, arn)
    assert target["RoleARN"].endswith("AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint")
    assert scaling.list_tags_for_resource(ResourceARN=arn)["Tags"] == {"a": "b"}
    wait(lambda: component()["RuntimeConfig"]["CurrentCopyCount"] == 2)
    scaling.register_scalable_target(**COMPONENT, MinCapacity=0, MaxCapacity=1)

    def newest() -> Any:
        return scaling.describe_scaling_activities(**COMPONENT)["ScalingActivities"][0]

    wait(lambda: "maximum" in newest()["Cause"] and newest()["StatusCode"] == "Successful")
    assert newest()["StatusMessage"] == (
        "Successfully set desired copy count to 1. Change successfully fulfilled by sagemaker."
    )
    assert component()["RuntimeConfig"]["CurrentCopyCount"] == 1


def test_instances_of_a_variant_can_be_scaled(scaling: Any, clients: Clients, wait: Callable[..., None]) -> None:
    """Application Auto Scaling changes the instances of a variant by UpdateEndpointWeightsAndCapacities."""
    variant = {**VARIANT, "ResourceId": "endpoint/m/variant/v"}
    scaling.register_scalable_target(**variant, MinCapacity=2, MaxCapacity=2)

    def count() -> int:
        described = clients.get("sagemaker").describe_endpoint(EndpointName="m")
        return int(described["ProductionVariants"][0]["CurrentInstanceCount"])

    wait(lambda: count() == 2)
    scaling.register_scalable_target(**variant, MinCapacity=1, MaxCapacity=1)
    wait(lambda: count() == 1)


def test_a_scaled_variant_keeps_its_instance_type_and_ends_with_its_endpoint(
    scaling: Any, clients: Clients, wait: Callable[..., None]
) -> None:
    """Another instance type is rejected while the variant is registered, which ends with the endpoint."""
    sagemaker = clients.get("sagemaker")
    plain = {"VariantName": "v", "InitialInstanceCount": 1, "ModelName": "model"}
    for kind in ("ml.g5.xlarge", "ml.g5.2xlarge"):
        sagemaker.create_endpoint_config(
            EndpointConfigName=kind.replace(".", "-"), ProductionVariants=[{**plain, "InstanceType": kind}]
        )
    sagemaker.create_endpoint(EndpointName="s", EndpointConfigName="ml-g5-xlarge")

    def settled() -> bool:
        return bool(sagemaker.describe_endpoint(EndpointName="s")["EndpointStatus"] == "InService")

    wait(settled)
    variant = {**VARIANT, "ResourceId": "endpoint/s/variant/v"}
    scaling.register_scalable_target(**variant, MinCapacity=1, MaxCapacity=2)
    with pytest.raises(ClientError, match=r"Variant v .* Deregister the variant as a scalable target"):
        sagemaker.update_endpoint(EndpointName="s", EndpointConfigName="ml-g5-2xlarge")
    sagemaker.update_endpoint(EndpointName="s", EndpointConfigName="ml-g5-xlarge")
    wait(settled)
    sagemaker.delete_endpoint(EndpointName="s")
    left = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert [target["ResourceId"] for target in left] == [COMPONENT["ResourceId"]]


def test_a_tracking_policy_has_two_alarms_that_live_and_die_with_it(scaling: Any, clients: Clients) -> None:
    """A tracking policy creates and deletes two alarms with the service's names."""
    first = scaling.put_scaling_policy(**COMPONENT, **tracking())
    second = scaling.put_scaling_policy(**COMPONENT, **tracking())
    assert first["PolicyARN"] == second["PolicyARN"]
    alarms = clients.get("cloudwatch").describe_alarms(AlarmNamePrefix="TargetTracking")["MetricAlarms"]
    assert {alarm["AlarmName"] for alarm in alarms} == {alarm["AlarmName"] for alarm in second["Alarms"]}
    high, low = sorted(alarms, key=lambda alarm: str(alarm["AlarmName"]))
    assert high["AlarmName"].startswith("TargetTracking-inference-component/c-AlarmHigh-")
    assert low["AlarmName"].startswith("TargetTracking-inference-component/c-AlarmLow-")
    read = ("MetricName", "Statistic", "Period", "EvaluationPeriods", "Threshold", "ComparisonOperator")
    assert [high[key] for key in read] == ["InvocationsPerCopy", "Sum", 60, 3, 70.0, "GreaterThanThreshold"]
    assert [low[key] for key in read] == ["InvocationsPerCopy", "Sum", 60, 15, 63.0, "LessThanThreshold"]
    assert high["AlarmActions"][0].startswith(second["PolicyARN"])
    (policy,) = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    assert policy["Alarms"] == second["Alarms"]
    scaling.delete_scaling_policy(**COMPONENT, PolicyName="t")
    assert clients.get("cloudwatch").describe_alarms(AlarmNamePrefix="TargetTracking")["MetricAlarms"] == []


def test_descriptions_are_filtered_and_paged(scaling: Any) -> None:
    """Descriptions of scaling resources can be filtered by name and resource, and come in pages."""
    for name in ("a", "b", "c"):
        scaling.put_scaling_policy(
            **COMPONENT, PolicyName=name, PolicyType="StepScaling", StepScalingPolicyConfiguration=STEP
        )
    pages = scaling.get_paginator("describe_scaling_policies").paginate(
        ServiceNamespace="sagemaker", PaginationConfig={"PageSize": 2}
    )
    assert [[one["PolicyName"] for one in page["ScalingPolicies"]] for page in pages] == [["a", "b"], ["c"]]
    named = scaling.describe_scaling_policies(ServiceNamespace="sagemaker", PolicyNames=["b"])["ScalingPolicies"]
    assert [one["PolicyName"] for one in named] == ["b"]
    other = scaling.describe_scaling_policies(**{**COMPONENT, "ResourceId": "inference-component/o"})
    assert other["ScalingPolicies"] == []


def test_scheduled_actions_are_kept_changed_and_deleted(scaling: Any) -> None:
    """Scheduled actions are stored with time zone, changed in place, and deleted."""
    action = {**COMPONENT, "ScheduledActionName": "night"}
    bounds = {"MinCapacity": 0, "MaxCapacity": 1}
    scaling.put_scheduled_action(
        **action, Schedule="cron(0 20 ? * MON-FRI *)", Timezone="Europe/Berlin", ScalableTargetAction=bounds
    )
    scaling.put_scheduled_action(**action, Schedule="cron(0 21 ? * MON-FRI *)")
    (kept,) = scaling.describe_scheduled_actions(**COMPONENT)["ScheduledActions"]
    assert (kept["Schedule"], kept["Timezone"], kept["ScalableTargetAction"]) == (
        "cron(0 21 ? * MON-FRI *)", "Europe/Berlin", bounds,
    )  # fmt: skip
    scaling.delete_scheduled_action(**action)
    assert scaling.describe_scheduled_actions(**COMPONENT)["ScheduledActions"] == []
    with pytest.raises(scaling.exceptions.ObjectNotFoundException):
        scaling.delete_scheduled_action(**action)


@pytest.mark.parametrize(
    ("request_of", "match"),
    [
        ({"MinCapacity": 2, "MaxCapacity": 1}, "cannot be less than minimum"),
        ({"ResourceId": "inference-component/none", "MinCapacity": 0, "MaxCapacity": 1}, "Could not find"),
        ({"ResourceId": "endpoint/m/variant/v", "MinCapacity": 1, "MaxCapacity": 1}, "Unsupported service namespace"),
        ({**VARIANT, "ResourceId": "endpoint/m/variant/v", "MinCapacity": 0, "MaxCapacity": 1}, "cannot go below 1"),
        ({**VARIANT, "ResourceId": "endpoint/m/variant/w", "MinCapacity": 1, "MaxCapacity": 1}, "Variant w not found"),
        ({**VARIANT, "ResourceId": "endpoint/m/variant/v"}, "must be specified to register"),
        ({"ServiceNamespace": "ecs", "MinCapacity": 0, "MaxCapacity": 1}, "scales sagemaker only"),
    ],
)
def test_wrong_registrations_are_refused(scaling: Any, request_of: dict[str, Any], match: str) -> None:
    """A wrong registration of a scalable target is rejected with the reason."""
    with pytest.raises(scaling.exceptions.ValidationException, match=match):
        scaling.register_scalable_target(**{**COMPONENT, **request_of})


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        (tracking("SageMakerVariantInvocationsPerInstance"), "cannot be used with scalable dimension"),
        ({"PolicyName": "t", "PolicyType": "TargetTrackingScaling"}, "must be specified for PolicyType"),
        ({"PolicyName": "t", "PolicyType": "PredictiveScaling"}, "not part of this emulation"),
        (
            {
                "PolicyName": "t",
                "PolicyType": "TargetTrackingScaling",
                "TargetTrackingScalingPolicyConfiguration": {"TargetValue": 1.0},
            },
            "exactly one of",
        ),
    ],
)
def test_wrong_policies_are_refused(scaling: Any, policy: dict[str, Any], match: str) -> None:
    """A wrong scaling policy is rejected with the reason, and is not stored."""
    with pytest.raises(ClientError, match=match):
        scaling.put_scaling_policy(**COMPONENT, **policy)
    assert scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"] == []


def test_what_is_not_registered_has_neither_policies_nor_an_end(scaling: Any) -> None:
    """Policies and deregistration of an unknown target raise ObjectNotFoundException."""
    scaling.deregister_scalable_target(**COMPONENT)
    for call in (
        lambda: scaling.deregister_scalable_target(**COMPONENT),
        lambda: scaling.put_scaling_policy(**COMPONENT, **tracking()),
        lambda: scaling.delete_scaling_policy(**COMPONENT, PolicyName="t"),
    ):
        with pytest.raises(scaling.exceptions.ObjectNotFoundException, match="inference-component/c"):
            call()


@pytest.mark.parametrize("schedule", ["every day", "cron(0 8 * *)", "rate(0 minutes)"])
def test_wrong_schedules_are_refused(scaling: Any, schedule: str) -> None:
    """A wrong scheduled action is rejected before it is stored."""
    with pytest.raises(scaling.exceptions.ValidationException, match="Schedule"):
        scaling.put_scheduled_action(
            **COMPONENT, ScheduledActionName="s", Schedule=schedule, ScalableTargetAction={"MinCapacity": 1}
        )
    assert scaling.describe_scheduled_actions(**COMPONENT)["ScheduledActions"] == []
