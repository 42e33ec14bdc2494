"""Model operations and the rules for containers, through boto3."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted

if TYPE_CHECKING:
    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process

REGISTRY = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
ARN = "arn:aws:sagemaker:us-east-1:123456789012"


def test_a_model_is_described_as_it_was_created(cloud: Cloud) -> None:
    """DescribeModel gives back the container, the role and the ARN, whose name is in lower case."""
    arn = cloud.create_model("Model-A", Environment={"K": "v"}, MultiModelConfig={"ModelCacheSetting": "Enabled"})
    model = cloud.sagemaker.describe_model(ModelName="Model-A")
    assert arn == model["ModelArn"] == f"{ARN}:model/model-a"
    assert model["PrimaryContainer"]["Environment"] == {"K": "v"}
    assert model["PrimaryContainer"]["Mode"] == "MultiModel"
    assert model["ExecutionRoleArn"] == cloud.role


def test_a_name_is_used_once_whatever_its_case(cloud: Cloud) -> None:
    """A second model of the name is refused with the service's text, until the first is deleted."""
    cloud.create_model("m")
    with faulted("ValidationException", 400, f'Cannot create already existing model "{ARN}:model/m".'):
        cloud.create_model("M")
    cloud.sagemaker.delete_model(ModelName="m")
    cloud.create_model("M")


@pytest.mark.parametrize("operation", ["describe_model", "delete_model"])
def test_a_missing_model_is_not_found(cloud: Cloud, operation: str) -> None:
    """Describing and deleting a missing model gives SageMaker's text."""
    with faulted("ValidationException", 400, f'Could not find model "{ARN}:model/gone".'):
        getattr(cloud.sagemaker, operation)(ModelName="gone")


@pytest.mark.parametrize(
    ("container", "about"),
    [
        ({"Image": f"{REGISTRY}/djl-inference:latest"}, f"Requested image {REGISTRY}/djl-inference:latest not found."),
        ({"Image": "python:3.12"}, "python:3.12"),
        ({"Image": f"{REGISTRY.replace('us-east-1', 'eu-west-1')}/djl-inference:0.36.0-cpu-full"}, "eu-west-1"),
        ({"Image": f"{REGISTRY.replace('7631', '9999')}/djl-inference:0.36.0-cpu-full"}, "999904351884"),
        (
            {"Image": f"{REGISTRY}/vllm:0.20.2-gpu-py312-cu130"},
            (
                f"Your Ecr Image {REGISTRY}/vllm:0.20.2-gpu-py312-cu130 does not contain required "
                "com.amazonaws.sagemaker.capabilities.multi-models=true Docker label(s)."
            ),
        ),
        ({"ModelDataUrl": "s3://no-such-bucket/p/"}, "Could not find model data at s3://no-such-bucket/p/."),
        ({"ModelDataUrl": "s3://[no bucket/p/"}, "s3://[no bucket/p/"),
        ({"ModelDataUrl": "s3://models"}, "ModelDataUrl"),
        ({"ModelDataUrl": None}, "ModelDataUrl"),
        ({"ModelDataUrl": "s3://models/p"}, "ModelDataUrl"),
        ({"ModelDataUrl": "s3://models/a.tar.gz"}, "ModelDataUrl"),
        ({"ModelDataUrl": "https://s3.amazonaws.com/models/p/"}, "ModelDataUrl"),
        ({"Mode": "SingleModel", "ModelDataUrl": "s3://models/no.tar.gz"}, "s3://models/no.tar.gz"),
        ({"Mode": "SingleModel", "MultiModelConfig": {"ModelCacheSetting": "Enabled"}}, "MultiModelConfig"),
        ({"Environment": {f"K{i}": "v" * 1000 for i in range(40)}}, "Environment"),
        ({"AdditionalModelDataSources": [{"ChannelName": "c", "S3DataSource": {}}]}, "AdditionalModelDataSources"),
        (
            {
                "ModelDataSource": {
                    "S3DataSource": {"S3Uri": "s3://models/p/", "S3DataType": "S3Prefix", "CompressionType": "None"}
                }
            },
            "ModelDataSource",
        ),
    ],
)
def test_a_container_that_breaks_a_rule_is_refused(cloud: Cloud, container: dict[str, Any], about: str) -> None:
    """A container that breaks a rule is rejected with the member, and no model is created."""
    if "AdditionalModelDataSources" in container:
        source = {"S3Uri": "s3://models/p/", "S3DataType": "S3Prefix", "CompressionType": "None"}
        container["AdditionalModelDataSources"][0]["S3DataSource"] = source
    with faulted("ValidationException", 400, about):
        cloud.create_model(**container)
    assert cloud.sagemaker.list_models()["Models"] == []


def test_a_mirror_in_the_own_account_is_known_by_its_name(cloud: Cloud) -> None:
    """An AWS image in a registry of the account is known by its name and tag."""
    cloud.create_model(Image="123456789012.dkr.ecr.us-east-1.amazonaws.com/mirror/djl-inference:0.36.0-cpu-full")


def test_the_role_must_exist_and_trust_sagemaker(cloud: Cloud) -> None:
    """A role that is missing, or that SageMaker may not assume, is refused with the service's text."""
    statement = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    foreign = cloud.iam.create_role(RoleName="foreign", AssumeRolePolicyDocument=policy)["Role"]["Arn"]
    for role in (foreign, "arn:aws:iam::123456789012:role/missing", f"arn:aws:iam::123456789012:role/{'r' * 200}"):
        cloud.role = role
        with faulted(
            "ValidationException",
            400,
            f"Could not assume role {role}. Please ensure that the role exists and allows principal "
            "'sagemaker.amazonaws.com' to assume the role.",
        ):
            cloud.create_model()


def test_pipelines_are_refused_by_name(cloud: Cloud) -> None:
    """A SageMaker model with a pipeline is rejected by name, because the emulator has no pipelines."""
    container = {"Image": f"{REGISTRY}/djl-inference:0.36.0-cpu-full"}
    with faulted("ValidationException", 400, "several containers"):
        cloud.sagemaker.create_model(ModelName="m", Containers=[container, container], ExecutionRoleArn=cloud.role)
    with faulted("ValidationException", 400, "PrimaryContainer"):
        cloud.sagemaker.create_model(ModelName="m", ExecutionRoleArn=cloud.role)


def test_lists_filter_sort_and_page(cloud: Cloud) -> None:
    """Lists are newest first, can be sorted by name and filtered, and pages join to the whole."""
    for name in ("b1", "a1", "c2"):
        cloud.create_model(name)
    newest_first = [model["ModelName"] for model in cloud.sagemaker.list_models()["Models"]]
    assert newest_first == ["c2", "a1", "b1"]
    by_name = cloud.sagemaker.list_models(SortBy="Name", SortOrder="Ascending", NameContains="1")["Models"]
    assert [model["ModelName"] for model in by_name] == ["a1", "b1"]
    pages = cloud.sagemaker.get_paginator("list_models").paginate(PaginationConfig={"PageSize": 2})
    assert [model["ModelName"] for page in pages for model in page["Models"]] == newest_first
    with faulted("ValidationException", 400, "NextToken"):
        cloud.sagemaker.list_models(NextToken="bm90IG91cnM=")


def test_tags_are_added_listed_and_deleted(cloud: Cloud) -> None:
    """Tags from the creation and from AddTags are listed together; an unknown ARN is refused."""
    arn = cloud.create_model()
    cloud.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    cloud.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "a", "Value": "3"}])
    cloud.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["b"])
    assert cloud.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "a", "Value": "3"}]
    with faulted("ValidationException", 400, f"Could not find resource {ARN}:model/gone."):
        cloud.sagemaker.list_tags(ResourceArn=f"{ARN}:model/gone")


def test_other_operations_are_refused_by_name(cloud: Cloud) -> None:
    """An operation of SageMaker that the emulation does not have is a clear error with boto3."""
    with faulted("UnknownOperationException", 400, "ListTrainingJobs"):
        cloud.sagemaker.list_training_jobs()
