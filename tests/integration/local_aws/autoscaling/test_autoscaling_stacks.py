"""CloudFormation's resource types of scaling with the emulated services."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from local_aws.testing.scaling_stage import COMPONENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local_aws.kit.clients import Clients

pytestmark = pytest.mark.process

TARGET_ID = "inference-component/c|sagemaker:inference-component:DesiredCopyCount|sagemaker"
NIGHT = {
    "ScheduledActionName": "night",
    "Schedule": "cron(0 20 ? * * *)",
    "ScalableTargetAction": {"MinCapacity": "0", "MaxCapacity": 1},
}


def template(*, maximum: int = 2, policy: str = "wake", threshold: str = "1", actions: list[Any] | None = None) -> str:
    """Return a template with a target, a step policy, a tracking policy and an alarm without a name."""
    step = {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": [{"MetricIntervalLowerBound": "0", "ScalingAdjustment": "1"}],
    }
    metric = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
    track = {"TargetValue": "5", "PredefinedMetricSpecification": {"PredefinedMetricType": metric}}
    resources: dict[str, tuple[str, dict[str, Any]]] = {
        "Target": (
            "ApplicationAutoScaling::ScalableTarget",
            {**COMPONENT, "MinCapacity": "0", "MaxCapacity": maximum, "ScheduledActions": actions or []},
        ),
        "Wake": (
            "ApplicationAutoScaling::ScalingPolicy",
            {
                "PolicyName": policy,
                "PolicyType": "StepScaling",
                "ScalingTargetId": {"Fn::GetAtt": ["Target", "Id"]},
                "StepScalingPolicyConfiguration": step,
            },
        ),
        "Track": (
            "ApplicationAutoScaling::ScalingPolicy",
            {
                **COMPONENT,
                "PolicyName": "track",
                "PolicyType": "TargetTrackingScaling",
                "TargetTrackingScalingPolicyConfiguration": track,
            },
        ),
        "Alarm": (
            "CloudWatch::Alarm",
            {
                "AlarmActions": [{"Ref": "Wake"}],
                "Namespace": "N",
                "MetricName": "m",
                "Statistic": "Maximum",
                "Period": "60",
                "EvaluationPeriods": 1,
                "Threshold": threshold,
                "ComparisonOperator": "GreaterThanThreshold",
                "Tags": [{"Key": "k", "Value": threshold}],
            },
        ),
    }
    whole: dict[str, Any] = {
        name: {"Type": f"AWS::{kind}", "Properties": values} for name, (kind, values) in resources.items()
    }
    whole["Track"]["DependsOn"] = "Target"
    outputs = {
        "Target": {"Ref": "Target"},
        "Policy": {"Fn::GetAtt": ["Wake", "Arn"]},
        "Alarm": {"Ref": "Alarm"},
        "AlarmArn": {"Fn::GetAtt": ["Alarm", "Arn"]},
    }
    return json.dumps({"Resources": whole, "Outputs": {name: {"Value": value} for name, value in outputs.items()}})


class Stack:
    """Stack `s`."""

    def __init__(self, clients: Clients, wait: Callable[..., None]) -> None:
        self._client = clients.get("cloudformation")
        self._wait = wait

    def bring(self, verb: str, body: str) -> dict[str, str]:
        """Create or update the stack, and return its outputs."""
        getattr(self._client, f"{verb}_stack")(StackName="s", TemplateBody=body)
        self._wait(lambda: not self.status.endswith("IN_PROGRESS"))
        (stack,) = self._client.describe_stacks(StackName="s")["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}

    @property
    def status(self) -> str:
        """Return the status of the stack."""
        return str(self._client.list_stacks()["StackSummaries"][0]["StackStatus"])

    def reasons(self) -> str:
        """Return the reasons of the events of failed resources."""
        events = self._client.describe_stack_events(StackName="s")["StackEvents"]
        return " ".join(str(event.get("ResourceStatusReason")) for event in events)

    def delete(self) -> None:
        """Delete the stack if it exists."""
        self._client.delete_stack(StackName="s")
        self._wait(lambda: not self.status.endswith("IN_PROGRESS"))
        assert self.status == "DELETE_COMPLETE"


@pytest.fixture
def stack(clients: Clients, wait: Callable[..., None], endpoint: None) -> Iterator[Stack]:  # noqa: ARG001 - what is scaled
    """Return a stack on the existing component `c`, and delete it after the test."""
    whole = Stack(clients, wait)
    yield whole
    whole.delete()


def test_a_stack_s_life(stack: Stack, clients: Clients) -> None:
    """The resources of scaling are created, updated in place, replaced where the type requires it, and deleted."""
    scaling, cloudwatch = clients.get("application-autoscaling"), clients.get("cloudwatch")

    def policies() -> dict[str, Any]:
        found = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
        return {policy["PolicyName"]: policy for policy in found}

    def alarm(name: str) -> Any:
        return cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"][0]

    made = stack.bring("create", template(actions=[NIGHT]))
    assert stack.status == "CREATE_COMPLETE", stack.reasons()
    assert made["Target"] == TARGET_ID
    assert made["Policy"] == policies()["wake"]["PolicyARN"]
    assert alarm(made["Alarm"])["AlarmActions"] == [made["Policy"]]
    assert made["AlarmArn"] == alarm(made["Alarm"])["AlarmArn"]
    (action,) = scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"]
    assert action["ScalableTargetAction"] == {"MinCapacity": 0, "MaxCapacity": 1}

    changed = stack.bring("update", template(maximum=3, policy="woken", threshold="2.5"))
    assert stack.status == "UPDATE_COMPLETE", stack.reasons()
    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert target["MaxCapacity"] == 3
    assert scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"] == []
    assert set(policies()) == {"woken", "track"}
    assert changed["Policy"] == policies()["woken"]["PolicyARN"] != made["Policy"]
    assert changed["Alarm"] == made["Alarm"]
    assert (alarm(made["Alarm"])["Threshold"], alarm(made["Alarm"])["AlarmActions"]) == (2.5, [changed["Policy"]])
    assert {"Key": "k", "Value": "2.5"} in cloudwatch.list_tags_for_resource(ResourceARN=made["AlarmArn"])["Tags"]

    stack.delete()
    assert scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []
    assert cloudwatch.describe_alarms(AlarmNames=[made["Alarm"]])["MetricAlarms"] == []
    assert cloudwatch.describe_alarms(AlarmNamePrefix="TargetTracking")["MetricAlarms"] == []


def test_what_is_there_already_is_not_taken_over(stack: Stack, clients: Clients) -> None:
    """An existing target fails the stack, whose rollback does not delete it."""
    scaling = clients.get("application-autoscaling")
    scaling.register_scalable_target(**COMPONENT, MinCapacity=1, MaxCapacity=1)
    stack.bring("create", template())
    assert stack.status == "ROLLBACK_COMPLETE"
    assert f"{TARGET_ID} already exists" in stack.reasons()
    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert target["MaxCapacity"] == 1
    scaling.deregister_scalable_target(**COMPONENT)
