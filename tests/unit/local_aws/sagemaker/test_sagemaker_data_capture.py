"""Data capture: which calls are written, where, by whom and in which form."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted

from local_aws.sagemaker.telemetry.data_capture import CapturePlan, Side
from local_aws.testing.sagemaker_cloud import client

if TYPE_CHECKING:
    from local_aws.testing.sagemaker_cloud import Cloud

CONFIG: dict[str, Any] = {
    "EnableCapture": True,
    "InitialSamplingPercentage": 100,
    "DestinationS3Uri": "s3://captured/calls/",
    "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
    "CaptureContentTypeHeader": {"JsonContentTypes": ["application/json"]},
}


@pytest.mark.parametrize("config", [None, {}, {**CONFIG, "EnableCapture": False}])
def test_nothing_is_captured_unless_it_is_switched_on(config: Any) -> None:
    """A configuration may keep the settings and be off."""
    assert CapturePlan.of(config, "role") is None


def test_a_plan_says_where_what_and_by_whom() -> None:
    """The prefix ends in a slash once, and one mode may stand for both."""
    plan = CapturePlan.of({**CONFIG, "CaptureOptions": [{"CaptureMode": "InputAndOutput"}], "KmsKeyId": "k"}, "role")
    assert plan is not None
    assert (plan.bucket, plan.prefix, plan.modes) == ("captured", "calls/", {"Input", "Output"})
    assert (plan.kms_key, plan.role) == ("k", "role")


def test_a_body_is_text_where_its_type_is_listed_and_base64_elsewhere() -> None:
    """AWS: JSON and CSV types are written as they are, all others encoded."""
    plan = CapturePlan.of(CONFIG, None)
    assert plan is not None
    text = Side(content_type="application/json; charset=utf-8", body="ü".encode()).captured(plan, "INPUT")
    assert (text["data"], text["encoding"], text["mode"]) == ("ü", "JSON", "INPUT")
    other = Side(content_type="tensor/npz", body=b"\0\xff").captured(plan, "OUTPUT")
    assert (base64.b64decode(other["data"]), other["encoding"]) == (b"\0\xff", "BASE64")


@pytest.mark.process
def test_calls_are_written_below_the_endpoint_and_the_variant(cloud: Cloud) -> None:
    """One JSON line per call with both bodies; the configuration is described as it was created."""
    cloud.s3.create_bucket(Bucket="captured")
    cloud.put_model("m.tar.gz", answer="m")
    cloud.create_model()
    cloud.sagemaker.create_endpoint_config(
        EndpointConfigName="capturing",
        DataCaptureConfig=CONFIG,
        ProductionVariants=[
            {
                "VariantName": "AllTraffic",
                "ModelName": "model",
                "InstanceType": "ml.g5.xlarge",
                "InitialInstanceCount": 1,
            }
        ],
    )
    described = cloud.sagemaker.describe_endpoint_config(EndpointConfigName="capturing")
    assert described["DataCaptureConfig"] == CONFIG
    cloud.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="capturing")
    cloud.wait_status("InService")
    cloud.runtime.invoke_endpoint(
        EndpointName="e", TargetModel="m.tar.gz", Body=b'{"inputs": "a"}', ContentType="application/json"
    )
    cloud.run(cloud.service.publish())
    (found,) = cloud.s3.list_objects_v2(Bucket="captured")["Contents"]
    assert found["Key"].startswith("calls/e/AllTraffic/2")
    (line,) = cloud.s3.get_object(Bucket="captured", Key=found["Key"])["Body"].read().decode().splitlines()
    record = json.loads(line)
    assert record["captureData"]["endpointInput"]["data"] == '{"inputs": "a"}'
    assert record["captureData"]["endpointOutput"]["mode"] == "OUTPUT"
    assert record["eventVersion"] == "0"


@pytest.mark.process
def test_quotas_are_those_that_refuse_an_endpoint(cloud: Cloud) -> None:
    """Service Quotas lists each instance type page by page, applied and by default; other services have no quotas."""
    quotas = client("service-quotas", cloud.url)
    listed: dict[str, Any] = {}
    for operation in ("list_service_quotas", "list_aws_default_service_quotas"):
        pages = quotas.get_paginator(operation).paginate(ServiceCode="sagemaker", PaginationConfig={"PageSize": 7})
        listed[operation] = {one["QuotaName"]: one["Value"] for page in pages for one in page["Quotas"]}
    assert listed["list_service_quotas"]["ml.g5.xlarge for endpoint usage"] == 20
    assert listed["list_service_quotas"] == listed["list_aws_default_service_quotas"]
    with faulted("NoSuchResourceException", 400, "ec2"):
        quotas.list_service_quotas(ServiceCode="ec2")
    with faulted("InvalidPaginationTokenException", 400):
        quotas.list_service_quotas(ServiceCode="sagemaker", NextToken="x")
