"""The resources of an endpoint that scales to zero, their properties, and the order of their deletion."""

from __future__ import annotations

import itertools
import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import aws_iam as iam
from synthesis import make_catalog, make_stack, only, resources, statements, template_of, waits_for

from constructs_lib.endpoints.scale_to_zero import ScaleToZeroEndpoint

if TYPE_CHECKING:
    from aws_cdk import aws_cloudwatch as cloudwatch

    from cohost.catalog.models import Catalog

COMPONENT = "AWS::SageMaker::InferenceComponent"
TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
ALARM = "AWS::CloudWatch::Alarm"


def catalog_of(*, scaling: dict[str, Any] | None = None, **endpoint: Any) -> Catalog:
    """Return a catalog of two models that scales to zero, with these settings."""
    return make_catalog(endpoint={"topology": "scale-to-zero", **endpoint}, scaling=scaling)


@pytest.fixture(scope="module")
def zero() -> dict[str, Any]:
    """Return the template with default settings and an idle time, for tests that only read it."""
    return template_of(make_stack(catalog_of(scaling={"idle_minutes": 20})))


def properties(template: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the properties of the only resource of a type."""
    found: dict[str, Any] = only(template, kind)[1]["Properties"]
    return found


def policies(template: dict[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return logical id and properties of each scaling policy by its name."""
    return {
        found["Properties"]["PolicyName"]: (name, found["Properties"])
        for name, found in resources(template, POLICY).items()
    }


def alarm_of(template: dict[str, Any], policy: str) -> tuple[str, dict[str, Any]]:
    """The alarm that sets off a policy: logical id and properties."""
    policy_id, _ = policies(template)[policy]
    [found] = [
        (name, alarm["Properties"])
        for name, alarm in resources(template, ALARM).items()
        if alarm["Properties"]["AlarmActions"] == [{"Ref": policy_id}]
    ]
    return found


def scale_to_zero(catalog: Catalog) -> ScaleToZeroEndpoint:
    """The endpoint's construct in a fresh stack."""
    endpoint = make_stack(catalog).endpoint
    assert isinstance(endpoint, ScaleToZeroEndpoint)
    return endpoint


def test_variant_has_no_model_and_instances_that_follow_the_copies(zero: dict[str, Any]) -> None:
    """The variant has no ModelName, because SageMaker rejects one with managed scaling, and a spare instance."""
    [variant] = properties(zero, "AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    assert variant == {
        "VariantName": "AllTraffic",
        "InstanceType": "ml.g5.xlarge",
        "InitialInstanceCount": 1,
        "InferenceAmiVersion": "al2023-ami-sagemaker-inference-gpu-4-1",
        "ManagedInstanceScaling": {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 2},
    }


def test_configuration_carries_the_role(zero: dict[str, Any]) -> None:
    """The endpoint config has the role of the components' containers, because its variants have no models."""
    _, model = only(zero, "AWS::SageMaker::Model")
    role = properties(zero, "AWS::SageMaker::EndpointConfig")["ExecutionRoleArn"]
    assert role == model["Properties"]["ExecutionRoleArn"]


def test_container_serves_the_bundle_and_waits_for_all_models(zero: dict[str, Any]) -> None:
    """The container has one archive in single-model mode, and answers pings when all models are loaded."""
    store_id, store = only(zero, "Custom::LmiModelStore")
    assert properties(zero, "AWS::SageMaker::Model")["PrimaryContainer"] == {
        "Image": "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130",
        "ModelDataUrl": {"Fn::GetAtt": [store_id, "ModelDataUrl"]},
        "Environment": {"SERVING_LOAD_MODELS": "ALL", "SERVING_WAIT_MODEL_LOADING": "true"},
    }
    assert store["Properties"]["Layout"] == "bundle"


def test_environment_is_added_to_the_start_up_settings() -> None:
    """The container has the catalog's variables besides those for the start-up."""
    template = template_of(make_stack(catalog_of(environment={"OMP_NUM_THREADS": "1"})))
    assert properties(template, "AWS::SageMaker::Model")["PrimaryContainer"]["Environment"] == {
        "SERVING_LOAD_MODELS": "ALL",
        "SERVING_WAIT_MODEL_LOADING": "true",
        "OMP_NUM_THREADS": "1",
    }


def test_component_is_named_and_takes_one_gpu(zero: dict[str, Any]) -> None:
    """The component has a fixed name, because `Ref` gives its ARN, and requests one GPU and little memory."""
    endpoint_id, _ = only(zero, "AWS::SageMaker::Endpoint")
    model_id, _ = only(zero, "AWS::SageMaker::Model")
    assert properties(zero, COMPONENT) == {
        "InferenceComponentName": "lmi-cohost-models",
        "EndpointName": {"Fn::GetAtt": [endpoint_id, "EndpointName"]},
        "VariantName": "AllTraffic",
        "Specification": {
            "ModelName": {"Fn::GetAtt": [model_id, "ModelName"]},
            "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": 1},
            "StartupParameters": {
                "ModelDataDownloadTimeoutInSeconds": 1200,
                "ContainerStartupHealthCheckTimeoutInSeconds": 600,
            },
        },
        "RuntimeConfig": {"CopyCount": 1},
        "Tags": [{"Key": "project", "Value": "test"}],
    }


def test_component_carries_the_catalogs_settings() -> None:
    """The component has the catalog's copy_count and both of its time-outs."""
    settings = {
        "copy_count": 2,
        "model_data_download_timeout_in_seconds": 300,
        "container_startup_health_check_timeout_in_seconds": 900,
    }
    component = properties(template_of(make_stack(catalog_of(scaling={"max": 3}, **settings))), COMPONENT)
    assert component["RuntimeConfig"] == {"CopyCount": 2}
    assert component["Specification"]["StartupParameters"] == {
        "ModelDataDownloadTimeoutInSeconds": 300,
        "ContainerStartupHealthCheckTimeoutInSeconds": 900,
    }


@pytest.mark.parametrize(("most", "percent"), [(2, 50), (3, 33), (20, 5), (1000, 5)])
def test_several_copies_are_replaced_a_few_at_a_time(most: int, percent: int) -> None:
    """An update replaces 5 to 50 % of the copies at a time: at most one copy of up to 20.

    All at once would need as many instances again, and a batch of one copy is out of range with a single one.
    """
    batch = {"Type": "CAPACITY_PERCENT", "Value": percent}
    several = properties(template_of(make_stack(catalog_of(scaling={"max": most}))), COMPONENT)
    assert several["DeploymentConfig"] == {
        "RollingUpdatePolicy": {
            "MaximumBatchSize": batch,
            "RollbackMaximumBatchSize": batch,
            "WaitIntervalInSeconds": 0,
        }
    }


def test_component_without_a_gpu_takes_most_of_the_cores() -> None:
    """A component without a GPU requests most cores of an instance and no accelerator, so copies do not share one."""
    cpu = {"image": "djl-inference:0.36.0-cpu-full", "instance_type": "ml.c7i.xlarge"}
    component = properties(template_of(make_stack(catalog_of(**cpu))), COMPONENT)
    assert component["Specification"]["ComputeResourceRequirements"] == {
        "MinMemoryRequiredInMb": 1024,
        "NumberOfCpuCoresRequired": 3,
    }


@pytest.mark.parametrize(
    ("instance_type", "scaling", "expected"),
    [
        ("ml.g5.xlarge", {"min": 1, "max": 3}, (1, 1, 4)),
        ("ml.g5.12xlarge", {"min": 2, "max": 9}, (1, 1, 4)),
        ("ml.g5.xlarge", {"min": 2, "max": 4}, (2, 2, 5)),
        ("ml.g5.xlarge", {"min": 2, "max": 60}, (2, 2, 63)),
        (
            "ml.g5.xlarge",
            {"min": 1, "max": 2, "schedule": [{"name": "n", "cron": "rate(1 day)", "min": 0, "max": 6}]},
            (1, 0, 7),
        ),
    ],
)
def test_instances_have_room_for_all_copies_of_bounds_and_schedule(
    instance_type: str, scaling: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    """The maximum of instances allows for all copies, their sharing of GPUs, and the new copies of an update."""
    catalog = catalog_of(scaling=scaling, instance_type=instance_type, copy_count=2)
    [variant] = properties(template_of(make_stack(catalog)), "AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    managed = variant["ManagedInstanceScaling"]
    assert (variant["InitialInstanceCount"], managed["MinInstanceCount"], managed["MaxInstanceCount"]) == expected


def test_target_is_the_components_number_of_copies(zero: dict[str, Any]) -> None:
    """The scaling target is the component's number of copies, from 0 to the catalog's maximum."""
    found = properties(zero, TARGET)
    assert found == {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "inference-component/lmi-cohost-models",
        "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
        "MinCapacity": 0,
        "MaxCapacity": 1,
        "Tags": [{"Key": "lmi-cohost:stack", "Value": "LmiCohostStack"}, {"Key": "project", "Value": "test"}],
    }


@pytest.mark.parametrize(
    ("metric", "target", "predefined"),
    [
        ("concurrency", 6, "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"),
        ("invocations", 200, "SageMakerInferenceComponentInvocationsPerCopy"),
    ],
)
def test_tracking_follows_the_catalogs_metric(metric: str, target: float, predefined: str) -> None:
    """Target tracking uses the catalog's metric per copy, and scales in unless there is an idle time."""
    scaling = {"metric": metric, "target": target, "scale_in_cooldown": 120, "scale_out_cooldown": 30}
    template = template_of(make_stack(catalog_of(scaling=scaling)))
    target_id, _ = only(template, TARGET)
    _, tracking = policies(template)["tracking"]
    assert tracking == {
        "PolicyName": "tracking",
        "PolicyType": "TargetTrackingScaling",
        "ScalingTargetId": {"Ref": target_id},
        "TargetTrackingScalingPolicyConfiguration": {
            "PredefinedMetricSpecification": {"PredefinedMetricType": predefined},
            "TargetValue": target,
            "ScaleInCooldown": 120,
            "ScaleOutCooldown": 30,
        },
    }


def test_wake_policy_adds_a_copy(zero: dict[str, Any]) -> None:
    """The wake policy adds one copy, without MinAdjustmentMagnitude, which is only for percentages."""
    target_id, _ = only(zero, TARGET)
    _, wake = policies(zero)["wake"]
    assert wake == {
        "PolicyName": "wake",
        "PolicyType": "StepScaling",
        "ScalingTargetId": {"Ref": target_id},
        "StepScalingPolicyConfiguration": {
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Maximum",
            "Cooldown": 60,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        },
    }


def test_wake_alarm_goes_off_at_the_first_refused_call(zero: dict[str, Any]) -> None:
    """The wake alarm fires at the first rejected call, and a minute without rejected calls ends it."""
    _, alarm = alarm_of(zero, "wake")
    assert {key: value for key, value in alarm.items() if key not in {"AlarmActions", "AlarmDescription", "Tags"}} == {
        "Namespace": "AWS/SageMaker",
        "MetricName": "NoCapacityInvocationFailures",
        "Dimensions": [{"Name": "InferenceComponentName", "Value": "lmi-cohost-models"}],
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "DatapointsToAlarm": 1,
        "Threshold": 1,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "TreatMissingData": "notBreaching",
    }


def test_idle_time_ends_the_copies(zero: dict[str, Any]) -> None:
    """The copies go to the minimum after `idle_minutes` without a call; missing metric values do not count as idle."""
    _, alarm = alarm_of(zero, "idle")
    assert (alarm["MetricName"], alarm["Statistic"], alarm["Threshold"]) == ("ConcurrentRequestsPerCopy", "Maximum", 0)
    assert (alarm["Period"], alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]) == (60, 20, 20)
    assert (alarm["ComparisonOperator"], alarm["TreatMissingData"]) == ("LessThanOrEqualToThreshold", "notBreaching")
    _, idle = policies(zero)["idle"]
    assert idle["StepScalingPolicyConfiguration"] == {
        "AdjustmentType": "ExactCapacity",
        "MetricAggregationType": "Maximum",
        "Cooldown": 300,
        "StepAdjustments": [{"MetricIntervalUpperBound": 0, "ScalingAdjustment": 0}],
    }


def test_idle_time_of_one_copy_replaces_trackings_own(zero: dict[str, Any]) -> None:
    """With one copy, `idle_minutes` switches off the scale-in of target tracking, which would come first."""
    _, tracking = policies(zero)["tracking"]
    assert tracking["TargetTrackingScalingPolicyConfiguration"]["DisableScaleIn"] is True


def test_without_an_idle_time_tracking_scales_in() -> None:
    """A catalog without `idle_minutes` has no idle policy, and target tracking scales in to the minimum."""
    template = template_of(make_stack(catalog_of()))
    assert set(policies(template)) == {"tracking", "wake"}
    _, tracking = policies(template)["tracking"]
    assert "DisableScaleIn" not in tracking["TargetTrackingScalingPolicyConfiguration"]


def test_idle_time_goes_down_to_the_minimum() -> None:
    """A component with a minimum above 0 keeps that number of copies after the idle time."""
    template = template_of(make_stack(catalog_of(scaling={"min": 1, "max": 3, "idle_minutes": 5})))
    [step] = policies(template)["idle"][1]["StepScalingPolicyConfiguration"]["StepAdjustments"]
    assert step["ScalingAdjustment"] == 1


def test_schedule_becomes_scheduled_actions() -> None:
    """Scheduled actions have the bounds and the time zone of the schedule; a rate has none."""
    schedule = [
        {"name": "day", "cron": "cron(0 8 ? * MON-FRI *)", "timezone": "Asia/Seoul", "min": 1},
        {"name": "reset", "cron": "rate(1 day)", "min": 0, "max": 1},
    ]
    template = template_of(make_stack(catalog_of(scaling={"schedule": schedule})))
    assert properties(template, TARGET)["ScheduledActions"] == [
        {
            "ScheduledActionName": "day",
            "Schedule": "cron(0 8 ? * MON-FRI *)",
            "Timezone": "Asia/Seoul",
            "ScalableTargetAction": {"MinCapacity": 1},
        },
        {
            "ScheduledActionName": "reset",
            "Schedule": "rate(1 day)",
            "ScalableTargetAction": {"MinCapacity": 0, "MaxCapacity": 1},
        },
    ]


def test_what_scales_goes_before_what_is_scaled(zero: dict[str, Any]) -> None:
    """Alarms and policies are deleted before the component, and the component before endpoint and model."""
    ids = policies(zero)
    for name in ("wake", "idle"):
        assert waits_for(zero, alarm_of(zero, name)[0], ids[name][0])
    target_id, _ = only(zero, TARGET)
    assert all(waits_for(zero, policy_id, target_id) for policy_id, _ in ids.values())
    kinds = (TARGET, COMPONENT, *(f"AWS::SageMaker::{kind}" for kind in ("Endpoint", "EndpointConfig", "Model")))
    chain = [only(zero, kind)[0] for kind in (*kinds, "Custom::LmiModelStore")]
    for later, earlier in itertools.pairwise(chain):
        assert waits_for(zero, later, earlier), (later, earlier)


def test_component_waits_for_rights_and_log_groups(zero: dict[str, Any]) -> None:
    """The component is created after its role has its rights, and both of its log groups have a retention."""
    component_id, _ = only(zero, COMPONENT)
    groups = {
        group["Properties"].get("LogGroupName"): (name, group)
        for name, group in resources(zero, "AWS::Logs::LogGroup").items()
    }
    for name in ("/aws/sagemaker/InferenceComponents/lmi-cohost-models", "/aws/sagemaker/Endpoints/lmi-cohost"):
        group_id, group = groups[name]
        assert (group["Properties"]["RetentionInDays"], group["DeletionPolicy"]) == (30, "Delete")
        assert waits_for(zero, component_id, group_id)
    role_id = properties(zero, "AWS::SageMaker::Model")["ExecutionRoleArn"]["Fn::GetAtt"][0]
    [policy_id] = [
        name
        for name, found in resources(zero, "AWS::IAM::Policy").items()
        if {"Ref": role_id} in found["Properties"]["Roles"]
    ]
    for name in (component_id, only(zero, "AWS::SageMaker::EndpointConfig")[0]):
        assert policy_id in zero["Resources"][name]["DependsOn"]
    written = [
        json.dumps(statement["Resource"])
        for statement in statements(zero, role_id)
        if "logs:PutLogEvents" in statement["Action"]
    ]
    assert len(written) == 1
    assert all(group_id in written[0] for group_id, group in groups.values() if group["Properties"].get("LogGroupName"))


def test_only_endpoint_and_component_have_names(zero: dict[str, Any]) -> None:
    """Only endpoint and component have fixed names, so model and config can be replaced while old ones serve."""
    assert "ModelName" not in properties(zero, "AWS::SageMaker::Model")
    assert "EndpointConfigName" not in properties(zero, "AWS::SageMaker::EndpointConfig")
    assert properties(zero, "AWS::SageMaker::Endpoint")["EndpointName"] == "lmi-cohost"


def test_other_models_change_the_component_alone() -> None:
    """Other models change the address of the bundle and the component, and not the endpoint."""
    entry = {"model_id": "org/other", "task": "text-classification"}
    before = template_of(make_stack(catalog_of()))
    after = template_of(
        make_stack(make_catalog(endpoint={"topology": "scale-to-zero"}, models={"nli": entry, "more": entry}))
    )
    changed = {name for name, found in after["Resources"].items() if found != before["Resources"].get(name)}
    assert changed == {only(after, "Custom::LmiModelStore")[0]}
    store_id, model_id = only(after, "Custom::LmiModelStore")[0], only(after, "AWS::SageMaker::Model")[0]
    assert waits_for(after, model_id, store_id)
    assert waits_for(after, only(after, COMPONENT)[0], model_id)


def test_topologies_share_the_endpoints_identity() -> None:
    """Another topology under the same name is an update that SageMaker rejects, and not a deletion of the endpoint."""
    multi, zero = template_of(make_stack(make_catalog())), template_of(make_stack(catalog_of()))
    for kind in ("AWS::SageMaker::Endpoint", "AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Model"):
        assert only(multi, kind)[0] == only(zero, kind)[0]


def test_outputs_say_how_to_call(zero: dict[str, Any]) -> None:
    """The outputs have the component's name, the models' names in its container, and an example call."""
    outputs = {name: output["Value"] for name, output in zero["Outputs"].items()}
    store_id, _ = only(zero, "Custom::LmiModelStore")
    assert outputs["Topology"] == "scale-to-zero"
    assert outputs["InferenceComponentName"] == "lmi-cohost-models"
    assert outputs["ModelDataUrl"] == {"Fn::GetAtt": [store_id, "ModelDataUrl"]}
    assert json.loads(outputs["Models"]) == {"nli": "nli", "mini": "mini"}
    words = shlex.split(outputs["ExampleCall"])
    options = dict(zip(words[3::2], words[4::2], strict=False))
    assert options["--inference-component-name"] == "lmi-cohost-models"
    assert options["--custom-attributes"] == "model_name=nli"
    assert "--target-model" not in options


def test_grant_invoke_allows_endpoint_and_component() -> None:
    """grant_invoke allows calls of endpoint and component, and reading the state of the component."""
    stack = make_stack(catalog_of())
    role = iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    stack.endpoint.grant_invoke(role)
    template = template_of(stack)
    [role_id] = [name for name in resources(template, "AWS::IAM::Role") if name.startswith("Caller")]
    [statement, waiting] = statements(template, role_id)
    assert waiting["Action"] == "sagemaker:DescribeInferenceComponent"
    assert waiting["Resource"] == {"Ref": only(template, COMPONENT)[0]}
    assert statement["Action"] == "sagemaker:InvokeEndpoint"
    assert statement["Resource"] == [
        {"Ref": only(template, "AWS::SageMaker::Endpoint")[0]},
        {"Ref": only(template, COMPONENT)[0]},
    ]


def test_metrics_of_calls_are_the_components_and_those_of_instances_the_endpoints() -> None:
    """Metrics of calls have the component as dimension, and metrics of instances the endpoint."""
    endpoint = scale_to_zero(catalog_of())
    component = {"InferenceComponentName": "lmi-cohost-models"}
    variant = {"EndpointName": "lmi-cohost", "VariantName": "AllTraffic"}

    def told(metric: cloudwatch.Metric) -> tuple[str, str, dict[str, Any]]:
        return metric.metric_name, metric.statistic, dict(metric.dimensions or {})

    assert told(endpoint.metric_invocations()) == ("Invocations", "Sum", component)
    assert told(endpoint.metric_model_latency()) == ("ModelLatency", "p99", component)
    assert told(endpoint.metric_no_capacity_invocation_failures()) == ("NoCapacityInvocationFailures", "Sum", component)
    assert told(endpoint.metric_concurrent_requests_per_copy()) == ("ConcurrentRequestsPerCopy", "Maximum", component)
    assert told(endpoint.metric_gpu_memory_utilization()) == ("GPUMemoryUtilization", "Average", variant)


def test_other_endpoint_name_is_another_component() -> None:
    """The component's logical id follows from its name, because CloudFormation cannot replace a component."""
    ids = [only(template_of(make_stack(catalog_of(name=name))), COMPONENT)[0] for name in ("one", "two", "one")]
    assert ids[0] == ids[2] != ids[1]
