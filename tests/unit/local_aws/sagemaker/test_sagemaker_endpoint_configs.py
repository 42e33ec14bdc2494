"""The operations of endpoint configs and their rules, with boto3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process

ARN = "arn:aws:sagemaker:us-east-1:123456789012"


def test_a_configuration_is_described_as_it_was_created(cloud: Cloud) -> None:
    """DescribeEndpointConfig gives back the variants, with the default weight."""
    cloud.create_model()
    arn = cloud.create_config(InferenceAmiVersion="al2023-ami-sagemaker-inference-gpu-4-1")
    config = cloud.sagemaker.describe_endpoint_config(EndpointConfigName="config")
    assert arn == config["EndpointConfigArn"] == f"{ARN}:endpoint-config/config"
    assert config["ProductionVariants"] == [
        {
            "VariantName": "AllTraffic",
            "ModelName": "model",
            "InstanceType": "ml.g5.xlarge",
            "InitialInstanceCount": 1,
            "InitialVariantWeight": 1.0,
            "InferenceAmiVersion": "al2023-ami-sagemaker-inference-gpu-4-1",
        }
    ]


def test_names_exist_once_and_missing_ones_are_not_found(cloud: Cloud) -> None:
    """A used name and a missing name give SageMaker's texts."""
    cloud.create_model()
    cloud.create_config()
    with faulted("ValidationException", 400, f'Cannot create already existing endpoint configuration "{ARN}:'):
        cloud.create_config()
    cloud.sagemaker.delete_endpoint_config(EndpointConfigName="config")
    with faulted("ValidationException", 400, f'Could not find endpoint configuration "{ARN}:endpoint-config/config".'):
        cloud.sagemaker.describe_endpoint_config(EndpointConfigName="config")


@pytest.mark.parametrize(
    ("variant", "about"),
    [
        ({"ModelName": "gone"}, f"{ARN}:model/gone"),
        (
            {"ManagedInstanceScaling": {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 1}},
            "ManagedInstanceScaling is only supported for inference component endpoints.",
        ),
        ({"ModelName": None}, "ExecutionRoleArn"),
        (
            {"ModelName": None, "ManagedInstanceScaling": {"Status": "ENABLED", "MinInstanceCount": 2}},
            "InitialInstanceCount",
        ),
        ({"InferenceAmiVersion": "al2023"}, "inferenceAmiVersion"),
        ({"ModelDataDownloadTimeoutInSeconds": 3601}, "modelDataDownloadTimeoutInSeconds"),
        ({"ContainerStartupHealthCheckTimeoutInSeconds": 59}, "containerStartupHealthCheckTimeoutInSeconds"),
        ({"InstanceType": None}, "InstanceType must be specified for production variant AllTraffic"),
        ({"InitialInstanceCount": None}, "InitialInstanceCount"),
        (
            {"ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}},
            "ServerlessConfig",
        ),
    ],
)
def test_a_variant_that_breaks_a_rule_is_refused(cloud: Cloud, variant: dict[str, Any], about: str) -> None:
    """A variant that breaks a rule is rejected with the name of the member."""
    cloud.create_model()
    with faulted("ValidationException", 400, about):
        cloud.create_config(unchecked=True, **variant)


def test_variants_are_of_one_kind(cloud: Cloud) -> None:
    """All variants of a config have models, or none has."""
    cloud.create_model()
    variant = {"InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1}
    variants = [{**variant, "VariantName": "a", "ModelName": "model"}, {**variant, "VariantName": "b"}]
    with faulted("ValidationException", 400, "ModelName"):
        cloud.sagemaker.create_endpoint_config(
            EndpointConfigName="c", ProductionVariants=variants, ExecutionRoleArn=cloud.role
        )


def test_a_configuration_for_components_may_go_to_zero(cloud: Cloud) -> None:
    """A config with a role and without a model may have a minimum of zero instances."""
    cloud.create_component_config()
    config = cloud.sagemaker.describe_endpoint_config(EndpointConfigName="config")
    (variant,) = config["ProductionVariants"]
    assert variant["ManagedInstanceScaling"] == {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 2}
    assert config["ExecutionRoleArn"] == cloud.role
    assert "ModelName" not in variant


def test_a_region_may_refuse_zero(make_cloud: Callable[..., Cloud]) -> None:
    """The emulator can reject a minimum of zero instances as one region did, and accepts one there."""
    cloud = make_cloud(scale_to_zero=False)
    text = "Min instance count needs to be greater than 0 for enabled managed instance scaling"
    with faulted("ValidationException", 400, text):
        cloud.create_component_config()
    cloud.create_component_config(minimum=1)


def test_features_that_the_emulation_lacks_are_refused(cloud: Cloud) -> None:
    """Asynchronous inference and equal variant names are refused."""
    cloud.create_model()
    variant = {"VariantName": "v", "ModelName": "model", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1}
    create = cloud.sagemaker.create_endpoint_config
    with faulted("ValidationException", 400, "AsyncInferenceConfig"):
        create(
            EndpointConfigName="c",
            ProductionVariants=[variant],
            AsyncInferenceConfig={"OutputConfig": {"S3OutputPath": "s3://models/out"}},
        )
    with faulted("ValidationException", 400, "v, v"):
        create(EndpointConfigName="c", ProductionVariants=[variant, variant])


def test_configurations_are_listed(cloud: Cloud) -> None:
    """ListEndpointConfigs gives name and ARN."""
    cloud.create_model()
    cloud.create_config()
    (summary,) = cloud.sagemaker.list_endpoint_configs()["EndpointConfigs"]
    assert (summary["EndpointConfigName"], summary["EndpointConfigArn"]) == ("config", f"{ARN}:endpoint-config/config")
