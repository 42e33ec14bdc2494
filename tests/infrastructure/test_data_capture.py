"""Captured calls: their bucket, the right to write there, and no capture by default."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from synthesis import make_catalog, make_stack, only, resources, statements, template_of

from cohost.catalog.models import Catalog
from cohost.catalog.sections.monitoring import DataCapture

KEY = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"


def synthesised(**capture: Any) -> dict[str, Any]:
    """The template of a catalog with `data_capture`."""
    stated = make_catalog().model_dump(by_alias=True, exclude_unset=True)
    return template_of(make_stack(Catalog.model_validate({**stated, "data_capture": capture})))


def config_of(template: dict[str, Any]) -> dict[str, Any]:
    """The endpoint configuration's DataCaptureConfig."""
    found: dict[str, Any] = only(template, "AWS::SageMaker::EndpointConfig")[1]["Properties"]["DataCaptureConfig"]
    return found


def capture_bucket(template: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The bucket that the records go to."""
    name = config_of(template)["DestinationS3Uri"]["Fn::Join"][1][1]["Ref"]
    return name, template["Resources"][name]


def test_nothing_is_kept_unless_the_catalog_asks(product: dict[str, Any]) -> None:
    """A catalog without `data_capture` has no capture and only one bucket."""
    assert "DataCaptureConfig" not in only(product, "AWS::SageMaker::EndpointConfig")[1]["Properties"]
    assert len(resources(product, "AWS::S3::Bucket")) == 1


def test_share_of_calls_and_answers_goes_to_its_own_bucket() -> None:
    """Sampled calls and answers go as JSON to a private bucket that requires TLS, expires records and is retained."""
    template = synthesised(sampling_percentage=5, expire_days=7)
    config = config_of(template)
    assert (config["EnableCapture"], config["InitialSamplingPercentage"]) == (True, 5)
    assert config["CaptureOptions"] == [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}]
    assert config["CaptureContentTypeHeader"] == {"JsonContentTypes": ["application/json"]}
    assert config["DestinationS3Uri"]["Fn::Join"][1][2] == "/data-capture/"
    _, bucket = capture_bucket(template)
    (rule,) = bucket["Properties"]["LifecycleConfiguration"]["Rules"]
    assert (rule["Prefix"], rule["ExpirationInDays"], rule["Status"]) == ("data-capture/", 7, "Enabled")
    assert all(bucket["Properties"]["PublicAccessBlockConfiguration"].values())
    assert bucket["DeletionPolicy"] == "Retain"


def test_role_may_write_below_the_prefix_alone() -> None:
    """The role gets one action on one prefix for data capture, and with a KMS key two actions on that key."""
    template = synthesised(sampling_percentage=5, prefix="records/", kms_key=KEY)
    bucket, _ = capture_bucket(template)
    role = only(template, "AWS::SageMaker::Model")[1]["Properties"]["ExecutionRoleArn"]["Fn::GetAtt"][0]
    rights = statements(template, role)
    (put,) = [one for one in rights if one["Action"] == "s3:PutObject"]
    assert put["Resource"] == {"Fn::Join": ["", [{"Fn::GetAtt": [bucket, "Arn"]}, "/records/*"]]}
    (key,) = [one for one in rights if one["Resource"] == KEY]
    assert key["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    assert config_of(template)["KmsKeyId"] == KEY


@pytest.mark.parametrize(
    "settings",
    [{}, {"sampling_percentage": 0}, {"sampling_percentage": 101}, {"sampling_percentage": 5, "prefix": "/x"}],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    """Data capture without a valid share, or with a wrong prefix, is rejected."""
    with pytest.raises(ValidationError):
        DataCapture.model_validate(settings)
