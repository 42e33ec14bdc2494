"""Reading a stack's outputs."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from fakes.refusals import refused

from cohost.endpoint.stack_outputs import Deployment, read_deployment
from cohost.errors import MissingStackError, StackError

OUTPUTS = {
    "EndpointName": "lmi-cohost",
    "BucketName": "bucket",
    "Prefix": "p/",
    "Generation": "0123456789ab",
    "ModelDataUrl": "s3://bucket/p/0123456789ab/",
    "Region": "us-east-1",
    "Topology": "multi-model",
    "Models": '{"nli": "nli.tar.gz"}',
}


@pytest.fixture
def cloudformation() -> tuple[Any, Stubber]:
    """Return a CloudFormation client with prepared answers."""
    client = boto3.client(
        "cloudformation", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    return client, Stubber(client)


def stack(outputs: dict[str, str]) -> dict[str, Any]:
    """Return DescribeStacks' answer for a stack with these outputs."""
    listed = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
    return {
        "Stacks": [
            {
                "StackName": "S",
                "CreationTime": "2026-01-01T00:00:00Z",
                "StackStatus": "CREATE_IN_PROGRESS",
                "Outputs": listed,
            }
        ]
    }


def test_outputs_become_a_deployment() -> None:
    """The stack's outputs have all that a caller needs."""
    deployment = Deployment.from_outputs("S", OUTPUTS)

    assert deployment.endpoint_name == "lmi-cohost"
    assert deployment.models == {"nli": "nli.tar.gz"}
    assert deployment.inference_component_name is None


def test_outputs_say_what_each_model_does_and_by_which_handler() -> None:
    """The outputs have the task and handler of each model; a stack of an earlier version works without."""
    kinds = {"Kinds": '{"nli": "batched/text-classification"}'}

    told, untold = Deployment.from_outputs("S", {**OUTPUTS, **kinds}), Deployment.from_outputs("S", OUTPUTS)

    assert (told.handlers, told.tasks) == ({"nli": "batched"}, {"nli": "text-classification"})
    assert (untold.handlers, untold.tasks) == ({}, {})


def test_outputs_of_a_scale_to_zero_stack_name_its_component() -> None:
    """A scale-to-zero stack without the output of its component is an error."""
    outputs = {**OUTPUTS, "Topology": "scale-to-zero", "Models": '{"nli": "nli"}'}
    with refused("outputs-missing", "stack S", kind=StackError) as caught:
        Deployment.from_outputs("S", outputs)
    assert "InferenceComponentName" in caught.value.problem

    deployment = Deployment.from_outputs("S", {**outputs, "InferenceComponentName": "lmi-cohost-models"})

    assert deployment.inference_component_name == "lmi-cohost-models"
    assert deployment.models == {"nli": "nli"}


@pytest.mark.parametrize("missing", sorted(OUTPUTS))
def test_stack_of_another_kind_is_refused(missing: str) -> None:
    """A stack that is not this project's is rejected with the missing outputs."""
    with refused("outputs-missing", "stack S") as caught:
        Deployment.from_outputs("S", {key: value for key, value in OUTPUTS.items() if key != missing})
    assert missing in caught.value.problem


def test_unknown_stack_says_how_to_deploy(cloudformation: tuple[Any, Stubber]) -> None:
    """The error for a missing stack has the command to deploy."""
    client, stubber = cloudformation
    stubber.add_client_error("describe_stacks", "ValidationError", "Stack with id S does not exist", 400)

    with stubber, refused("stack-missing", "stack S", kind=MissingStackError) as caught:
        read_deployment(client, "S")
    assert "`cdk deploy S`" in caught.value.fix


def test_refused_credentials_are_no_reason_to_deploy(cloudformation: tuple[Any, Stubber]) -> None:
    """The error for rejected credentials has AWS's message, and does not advise to deploy."""
    client, stubber = cloudformation
    stubber.add_client_error("describe_stacks", "InvalidClientTokenId", "The access key 'test' is unknown.", 403)

    with stubber, refused("stack-refused", "stack S", kind=StackError) as caught:
        read_deployment(client, "S")
    assert "'test' is unknown" in caught.value.problem
    assert "deploy" not in caught.value.fix


def test_stack_under_way_has_no_outputs_yet(cloudformation: tuple[Any, Stubber]) -> None:
    """The error for a stack that is being created says so."""
    client, stubber = cloudformation
    stubber.add_response("describe_stacks", stack({}))

    with stubber, refused("stack-unfinished", "stack S", kind=StackError):
        read_deployment(client, "S")


def test_missing_credentials_are_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for missing credentials names the variables to set."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    client = boto3.Session().client("cloudformation", region_name="us-east-1")

    with refused("stack-unreachable", "stack S", kind=StackError):
        read_deployment(client, "S")
