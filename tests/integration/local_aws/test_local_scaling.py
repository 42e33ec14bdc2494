"""Scaling with real LMI containers: a component to zero and back, and an endpoint that grows and shrinks."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from fakes.faults import faulted
from test_local_sagemaker_components import IMAGE, MINILM, Aws, archive, serving, template

from local_aws.testing.running import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Fifteen idle minutes, after which a copy goes, take nine seconds; the twelve of an instance seven.
SPEED = 100
COMPONENT = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "inference-component/all-models",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
VARIANT = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/e/variant/AllTraffic",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}


def resource(kind: str, after: str, **properties: Any) -> dict[str, Any]:
    """A resource that comes after another."""
    return {"Type": f"AWS::{kind}", "DependsOn": after, "Properties": properties}


def tracking(metric: str, whose: dict[str, str], target: float) -> dict[str, Any]:
    """Return a policy that tracks one of SageMaker's metrics."""
    configuration = {
        "TargetValue": target,
        "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
        "ScaleInCooldown": 60,
        "ScaleOutCooldown": 60,
    }
    return resource(
        "ApplicationAutoScaling::ScalingPolicy",
        "Target",
        **whose,
        PolicyName="track",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration=configuration,
    )


def scale_to_zero_template() -> str:
    """Return the components' template with 0 to 1 copies, target tracking, and a wake policy with its alarm."""
    whole = json.loads(template("one.tar.gz"))
    step = {
        "AdjustmentType": "ChangeInCapacity",
        "MetricAggregationType": "Maximum",
        "Cooldown": 60,
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
    }
    metric = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
    whole["Resources"] |= {
        "Target": resource(
            "ApplicationAutoScaling::ScalableTarget", "Component", **COMPONENT, MinCapacity=0, MaxCapacity=1
        ),
        "Track": tracking(metric, COMPONENT, 5),
        "Wake": resource(
            "ApplicationAutoScaling::ScalingPolicy",
            "Target",
            **COMPONENT,
            PolicyName="wake",
            PolicyType="StepScaling",
            StepScalingPolicyConfiguration=step,
        ),
        "WakeAlarm": resource(
            "CloudWatch::Alarm",
            "Target",
            AlarmActions=[{"Ref": "Wake"}],
            Namespace="AWS/SageMaker",
            MetricName="NoCapacityInvocationFailures",
            Dimensions=[{"Name": "InferenceComponentName", "Value": "all-models"}],
            Statistic="Maximum",
            Period=30,
            EvaluationPeriods=1,
            Threshold=1,
            ComparisonOperator="GreaterThanOrEqualToThreshold",
        ),
    }
    return json.dumps(whole)


def one_model_template() -> str:
    """Return a template of an endpoint with one model and 1 to 2 instances that follow the concurrency."""
    whole = json.loads(template("one.tar.gz"))
    resources = whole["Resources"]
    del resources["Component"], whole["Outputs"]
    container = {"Image": IMAGE, "ModelDataUrl": "s3://models/one.tar.gz"}
    resources["Model"]["Properties"]["PrimaryContainer"] = container
    (variant,) = resources["Config"]["Properties"]["ProductionVariants"]
    del variant["ManagedInstanceScaling"]
    variant["ModelName"] = {"Fn::GetAtt": ["Model", "ModelName"]}
    resources |= {
        "Target": resource(
            "ApplicationAutoScaling::ScalableTarget", "Endpoint", **VARIANT, MinCapacity=1, MaxCapacity=2
        ),
        "Track": tracking("SageMakerVariantConcurrentRequestsPerModelHighResolution", VARIANT, 1),
    }
    return json.dumps(whole)


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Aws]:
    """A front door with an empty bucket."""
    with serving(tmp_path, instance_idle_s=720) as made:
        yield made


def shape(aws: Aws) -> list[int]:
    """Return the number of copies on each instance."""
    (endpoint,) = aws.door.page("/_cohost/endpoints")["endpoints"]
    return [len(instance.get("copies", [])) for instance in endpoint["variants"][0]["instances"]]


def delete(aws: Aws) -> None:
    """Delete the stack and check that no resource is left."""
    aws.door.delete_stack()
    scaling = aws.door.client("application-autoscaling")
    assert scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []
    assert aws.door.client("cloudwatch").describe_alarms()["MetricAlarms"] == []
    assert aws.sagemaker.list_endpoints()["Endpoints"] == []
    assert aws.sagemaker.list_inference_components()["InferenceComponents"] == []


def causes(aws: Aws) -> list[str]:
    """Return the causes of capacity changes by policy, newest first."""
    scaling = aws.door.client("application-autoscaling")
    activities = scaling.describe_scaling_activities(ServiceNamespace="sagemaker")["ScalingActivities"]
    return [f"{one['Description']} {one['Cause'].rpartition(' ')[2]}" for one in activities]


def test_a_component_sleeps_when_idle_and_wakes_when_called(aws: Aws) -> None:
    """An idle component goes to zero copies and instances, and a rejected call wakes it."""
    aws.s3.put_object(Bucket="models", Key="one.tar.gz", Body=archive({"minilm": MINILM}))
    aws.create(scale_to_zero_template())
    before = aws.call("minilm")

    # Only now, so that a slow machine has called before the copy has been idle for long.
    aws.door.set_speed(SPEED)
    wait_for(lambda: shape(aws) == [0])
    wait_for(lambda: shape(aws) == [])
    with faulted("ValidationError", 400, "Inference Component has no capacity"):
        aws.call("minilm")

    def wanted() -> int:
        described = aws.sagemaker.describe_inference_component(InferenceComponentName="all-models")
        return int(described["RuntimeConfig"]["DesiredCopyCount"])

    wait_for(lambda: wanted() == 1)
    # At its own pace, so that a slow machine has time to look before the copy is idle again.
    aws.door.set_speed(1)
    wait_for(lambda: shape(aws) == [1])
    assert aws.call("minilm") == before
    assert causes(aws)[:2] == ["Setting desired copy count to 1. wake", "Setting desired copy count to 0. track"]
    delete(aws)


def test_an_endpoint_of_one_model_grows_under_load_and_shrinks_after_it(aws: Aws) -> None:
    """Four callers at once bring a second instance that serves too; without callers the instance ends."""
    aws.s3.put_object(Bucket="models", Key="one.tar.gz", Body=archive({"minilm": MINILM}))
    aws.create(one_model_template())
    aws.door.set_speed(SPEED)
    enough = threading.Event()

    def call() -> None:
        while not enough.is_set():
            # A model that loads for long is not ready yet: that is load as well.
            with contextlib.suppress(ClientError):
                aws.runtime.invoke_endpoint(
                    EndpointName="e",
                    CustomAttributes="model_name=minilm",
                    ContentType="application/json",
                    Body=b'{"inputs": "the movie was great"}',
                )

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        wait_for(lambda: len(shape(aws)) == 2)
    finally:
        enough.set()
        for caller in callers:
            caller.join()
    wait_for(lambda: len(shape(aws)) == 1)
    assert causes(aws) == ["Setting desired instance count to 1. track", "Setting desired instance count to 2. track"]
    delete(aws)
