"""Model, endpoint config and endpoint: names, settings, order, and the methods of the construct."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import aws_iam as iam
from synthesis import make_catalog, make_stack, only, resources, statements, template_of, waits_for

if TYPE_CHECKING:
    from aws_cdk import aws_cloudwatch as cloudwatch


def variant_of(template: dict[str, Any]) -> dict[str, Any]:
    """Return the only production variant."""
    _, config = only(template, "AWS::SageMaker::EndpointConfig")
    [variant] = config["Properties"]["ProductionVariants"]
    assert isinstance(variant, dict)
    return variant


def container_of(template: dict[str, Any]) -> dict[str, Any]:
    """Return the only container."""
    _, model = only(template, "AWS::SageMaker::Model")
    container: dict[str, Any] = model["Properties"]["PrimaryContainer"]
    return container


def test_container_serves_the_stores_address_in_multi_model_mode(product: dict[str, Any]) -> None:
    """ModelDataUrl is the custom resource's answer, so a new generation creates a new SageMaker model."""
    store_id, _ = only(product, "Custom::LmiModelStore")
    container = container_of(product)
    assert container["Mode"] == "MultiModel"
    assert container["ModelDataUrl"] == {"Fn::GetAtt": [store_id, "ModelDataUrl"]}
    assert container["Image"] == ("763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130")
    assert container["MultiModelConfig"] == {"ModelCacheSetting": "Enabled"}
    assert "ModelDataSource" not in container


def test_only_the_endpoint_has_a_name(product: dict[str, Any]) -> None:
    """Only the endpoint has a fixed name, so model and config can be replaced while the old ones serve."""
    _, model = only(product, "AWS::SageMaker::Model")
    _, config = only(product, "AWS::SageMaker::EndpointConfig")
    _, endpoint = only(product, "AWS::SageMaker::Endpoint")
    assert "ModelName" not in model["Properties"]
    assert "EndpointConfigName" not in config["Properties"]
    assert endpoint["Properties"]["EndpointName"] == "lmi-cohost"


def test_each_refers_to_the_next_by_name(product: dict[str, Any]) -> None:
    """The endpoint config names the generated model, and the endpoint the generated config."""
    model_id, _ = only(product, "AWS::SageMaker::Model")
    config_id, _ = only(product, "AWS::SageMaker::EndpointConfig")
    _, endpoint = only(product, "AWS::SageMaker::Endpoint")
    assert variant_of(product)["ModelName"] == {"Fn::GetAtt": [model_id, "ModelName"]}
    assert endpoint["Properties"]["EndpointConfigName"] == {"Fn::GetAtt": [config_id, "EndpointConfigName"]}


def test_variant_carries_the_catalogs_settings() -> None:
    """The variant has the catalog's instance settings and both of its time-outs."""
    settings = {
        "instance_type": "ml.g4dn.xlarge",
        "initial_instance_count": 2,
        "model_data_download_timeout_in_seconds": 300,
        "container_startup_health_check_timeout_in_seconds": 900,
    }
    assert variant_of(template_of(make_stack(make_catalog(endpoint=settings)))) == {
        "VariantName": "AllTraffic",
        "ModelName": {"Fn::GetAtt": ["EndpointModel0F230181", "ModelName"]},
        "InstanceType": "ml.g4dn.xlarge",
        "InitialInstanceCount": 2,
        "InitialVariantWeight": 1,
        "InferenceAmiVersion": "al2023-ami-sagemaker-inference-gpu-4-1",
        "ModelDataDownloadTimeoutInSeconds": 300,
        "ContainerStartupHealthCheckTimeoutInSeconds": 900,
    }


@pytest.mark.parametrize(
    ("endpoint", "version"),
    [
        ({}, "al2023-ami-sagemaker-inference-gpu-4-1"),
        ({"image": "djl-inference:0.32.0-lmi14.0.0-cu126"}, "al2-ami-sagemaker-inference-gpu-3-1"),
        ({"image": "djl-inference:0.36.0-cpu-full", "instance_type": "ml.c7i.xlarge"}, None),
        ({"inference_ami_version": "none"}, None),
        ({"inference_ami_version": "al2-ami-sagemaker-inference-gpu-2"}, "al2-ami-sagemaker-inference-gpu-2"),
    ],
)
def test_host_image_follows_the_container_image(endpoint: dict[str, Any], version: str | None) -> None:
    """The host's driver fits the image's CUDA by default; the catalog can name another host image."""
    assert variant_of(template_of(make_stack(make_catalog(endpoint=endpoint)))).get("InferenceAmiVersion") == version


def test_environment_is_left_out_unless_given() -> None:
    """The environment is left out of the template unless the catalog has variables."""
    # GIVEN
    plain = make_stack(make_catalog())
    given = make_stack(make_catalog(endpoint={"environment": {"SERVING_LOAD_MODELS": "NONE"}}))
    # THEN
    assert "Environment" not in container_of(template_of(plain))
    assert container_of(template_of(given))["Environment"] == {"SERVING_LOAD_MODELS": "NONE"}


def test_model_cache_can_be_disabled() -> None:
    """A catalog can set ModelCacheSetting to Disabled."""
    template = template_of(make_stack(make_catalog(endpoint={"model_cache_setting": "Disabled"})))
    assert container_of(template)["MultiModelConfig"] == {"ModelCacheSetting": "Disabled"}


def test_log_group_is_there_before_and_after_the_endpoint(product: dict[str, Any]) -> None:
    """The log group is created before the endpoint, so SageMaker creates none without a retention."""
    [(group_id, group)] = [
        (name, found)
        for name, found in resources(product, "AWS::Logs::LogGroup").items()
        if found["Properties"].get("LogGroupName") == "/aws/sagemaker/Endpoints/lmi-cohost"
    ]
    endpoint_id, endpoint = only(product, "AWS::SageMaker::Endpoint")
    assert group["DeletionPolicy"] == "Delete"
    assert group["Properties"]["RetentionInDays"] == 30
    assert group_id in endpoint["DependsOn"]
    assert waits_for(product, endpoint_id, group_id)


def test_grant_invoke_allows_this_endpoint_alone() -> None:
    """grant_invoke gives a role one action on one endpoint."""
    # GIVEN
    stack = make_stack(make_catalog())
    role = iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    # WHEN
    stack.endpoint.grant_invoke(role)
    # THEN
    template = template_of(stack)
    [role_id] = [name for name in resources(template, "AWS::IAM::Role") if name.startswith("Caller")]
    endpoint_id, _ = only(template, "AWS::SageMaker::Endpoint")
    [statement] = statements(template, role_id)
    assert (statement["Action"], statement["Resource"]) == ("sagemaker:InvokeEndpoint", {"Ref": endpoint_id})


def test_metrics_carry_endpoint_and_variant() -> None:
    """The metrics of the construct have its endpoint and variant as dimensions."""
    endpoint = make_stack(make_catalog()).endpoint

    def told(metric: cloudwatch.Metric) -> tuple[str, str, str]:
        assert metric.dimensions == {"EndpointName": "lmi-cohost", "VariantName": "AllTraffic"}
        return metric.namespace, metric.metric_name, metric.statistic

    calls, instances = "AWS/SageMaker", "/aws/sagemaker/Endpoints"
    assert told(endpoint.metric("InvocationsPerInstance", statistic="Sum")) == (calls, "InvocationsPerInstance", "Sum")
    assert told(endpoint.metric_invocations()) == (calls, "Invocations", "Sum")
    assert told(endpoint.metric_invocation_errors(server=True)) == (calls, "Invocation5XXErrors", "Sum")
    assert told(endpoint.metric_invocation_errors(server=False)) == (calls, "Invocation4XXErrors", "Sum")
    assert told(endpoint.metric_model_latency()) == (calls, "ModelLatency", "p99")
    assert told(endpoint.metric_overhead_latency(statistic="p50")) == (calls, "OverheadLatency", "p50")
    assert told(endpoint.metric_model_loading_wait_time()) == (calls, "ModelLoadingWaitTime", "Maximum")
    assert told(endpoint.metric_model_cache_hit()) == (calls, "ModelCacheHit", "Average")
    assert told(endpoint.metric_loaded_model_count()) == (instances, "LoadedModelCount", "Average")
    assert told(endpoint.metric_gpu_utilization()) == (instances, "GPUUtilization", "Average")
    assert told(endpoint.metric_gpu_memory_utilization()) == (instances, "GPUMemoryUtilization", "Average")
    assert told(endpoint.metric_memory_utilization()) == (instances, "MemoryUtilization", "Average")
