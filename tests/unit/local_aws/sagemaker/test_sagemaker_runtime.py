"""InvokeEndpoint through boto3: targets, header fields, limits and errors."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process


def test_a_call_reaches_the_container_with_its_fields(cloud: Cloud) -> None:
    """Body, content type, accept, custom attributes and target reach the container."""
    cloud.put_model("sub/a.tar.gz", answer="a")
    cloud.deploy()
    answer = cloud.runtime.invoke_endpoint(
        EndpointName="e",
        TargetModel="sub/a.tar.gz",
        Body='{"inputs": "안녕"}'.encode(),
        ContentType="application/json",
        Accept="application/jsonlines",
        CustomAttributes="trace=1;x=2",
    )
    seen = json.loads(answer["Body"].read())
    assert seen["body"] == '{"inputs": "안녕"}'
    assert seen["headers"]["content-type"] == "application/json"
    assert seen["headers"]["accept"] == "application/jsonlines"
    assert seen["headers"]["x-amzn-sagemaker-custom-attributes"] == "trace=1;x=2"
    assert seen["headers"]["x-amzn-sagemaker-target-model"] == "sub/a.tar.gz"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    assert answer["CustomAttributes"] == "trace=seen"
    assert answer["ContentType"] == "application/json"


def test_an_endpoint_is_found_only_under_its_exact_name(cloud: Cloud) -> None:
    """A wrong endpoint name, or letter case, gives SageMaker's ValidationError."""
    cloud.deploy()
    for name in ("none", "E"):
        with faulted("ValidationError", 400, f"Endpoint {name} of account 123456789012 not found."):
            cloud.runtime.invoke_endpoint(EndpointName=name, TargetModel="a.tar.gz", Body=b"{}")


def test_a_multi_model_endpoint_wants_a_target(cloud: Cloud) -> None:
    """A call without TargetModel of a multi-model endpoint is rejected."""
    cloud.deploy()
    with faulted("ValidationError", 400, "is missing a target model header."):
        cloud.invoke(None)


def test_a_single_model_endpoint_serves_its_archive_and_wants_no_target(cloud: Cloud) -> None:
    """A SingleModel container serves its archive, and TargetModel is rejected."""
    cloud.put_model("one.tar.gz", answer="the one")
    cloud.deploy(Mode="SingleModel", ModelDataUrl="s3://models/p/one.tar.gz")
    assert cloud.factory.started[0].options["multi_model"] is False
    assert cloud.invoke(None)["answer"] == "the one"
    text = "Endpoint e is not a multi-model endpoint and does not support target model header."
    with faulted("ValidationError", 400, text):
        cloud.invoke("a.tar.gz")


def test_a_single_model_archive_that_is_gone_fails_the_endpoint(cloud: Cloud) -> None:
    """A missing archive of a SingleModel container is the FailureReason of the endpoint."""
    cloud.s3.put_object(Bucket="models", Key="p/one.tar.gz", Body=b"no archive")
    cloud.create_model(Mode="SingleModel", ModelDataUrl="s3://models/p/one.tar.gz")
    cloud.create_config()
    cloud.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="config")
    assert "Failed to extract model data(bucket: models, key: p/one" in cloud.wait_status("Failed")["FailureReason"]


@pytest.mark.parametrize(
    ("target", "about"),
    [
        ("none.tar.gz", "Failed to download model data(bucket: models, key: p/none.tar.gz). Please ensure that"),
        ("A.tar.gz", "key: p/A.tar.gz"),
        ("../p/a.tar.gz", "TargetModel"),
        ("a/../../b", "TargetModel"),
        ("/", "TargetModel"),
        ("x" * 1024, "key: p/xxx"),
        ("x" * 1025, "targetModel"),
    ],
)
def test_a_bad_target_is_a_validation_error(cloud: Cloud, target: str, about: str) -> None:
    """A target that is missing, in other letter case, too long or outside the prefix is refused; nothing is loaded."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    with faulted("ValidationError", 400, about):
        cloud.invoke(target)
    assert cloud.factory.started[0].loads == []


@pytest.mark.parametrize(
    ("more", "about"),
    [
        ({"CustomAttributes": "x" * 1025}, "customAttributes"),
        ({"CustomAttributes": "n\u00e9"}, "customAttributes"),
        (
            {"InferenceComponentName": "c"},
            "Inference Component Name header is not allowed",
        ),
        ({"TargetVariant": "other"}, "other"),
        ({"TargetContainerHostname": "h"}, "TargetContainerHostname"),
    ],
)
def test_header_fields_are_checked(cloud: Cloud, more: dict[str, str], about: str) -> None:
    """Header fields that are too long, or do not fit the endpoint, are rejected."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    with faulted("ValidationError", 400, about):
        cloud.invoke(**more)


def test_the_body_has_a_limit(cloud: Cloud) -> None:
    """A body of 6,291,456 bytes is accepted, and one byte more is 413."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    assert len(cloud.invoke(body="x" * 6_291_456)["body"]) == 6_291_456
    with faulted("413", 413, "HTTP content length exceeded 6291456 bytes."):
        cloud.invoke(body="x" * 6_291_457)


@pytest.mark.parametrize(("status", "side"), [(400, "client"), (503, "server")])
def test_a_containers_error_is_a_model_error(cloud: Cloud, status: int, side: str) -> None:
    """A container's error is a ModelError with its status, its text and the log's address."""
    cloud.put_model("a.tar.gz", behaviour=f"invoke_status={status}")
    cloud.deploy()
    with pytest.raises(cloud.runtime.exceptions.ModelError) as caught:
        cloud.invoke()
    response = caught.value.response
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert response["OriginalStatusCode"] == status
    assert response["OriginalMessage"] == "refused by the model"
    assert response["LogStreamArn"] == "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/Endpoints/e"
    assert response["Error"]["Message"] == (
        f'Received {side} error ({status}) from primary with message "refused by the model". See '
        "https://us-east-1.console.aws.amazon.com/cloudwatch/home?region=us-east-1#logEventViewer:group="
        "/aws/sagemaker/Endpoints/e in account 123456789012 for more information."
    )


def test_a_call_that_takes_too_long_is_a_model_error(make_cloud: Callable[..., Cloud]) -> None:
    """A container that does not answer within the limit gives the service's time-out text."""
    cloud = make_cloud(invocation_timeout_s=0.2)
    cloud.put_model("a.tar.gz", behaviour="invoke=2")
    cloud.deploy()
    with faulted("ModelError", 424, "Your invocation timed out while waiting") as caught:
        cloud.invoke()
    assert caught.value.response["OriginalStatusCode"] == 0


def test_no_living_instance_is_service_unavailable(make_cloud: Callable[..., Cloud]) -> None:
    """While the only container is dead, a call fails at once with 503."""
    cloud = make_cloud(alive_interval_s=30)
    cloud.deploy()
    cloud.factory.failing = True
    cloud.run(cloud.factory.started[0].die())
    with pytest.raises(cloud.runtime.exceptions.ServiceUnavailable):
        cloud.invoke()
    cloud.factory.failing = False


def test_variants_share_calls_by_weight(cloud: Cloud) -> None:
    """Variants share calls exactly by weight, and TargetVariant overrides the weights."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.create_model()
    variant = {"ModelName": "model", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1}
    variants = [
        {**variant, "VariantName": "big", "InitialVariantWeight": 3},
        {**variant, "VariantName": "small", "InitialVariantWeight": 1},
    ]
    cloud.sagemaker.create_endpoint_config(EndpointConfigName="config", ProductionVariants=variants)
    cloud.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="config")
    cloud.wait_status("InService")

    def called(**more: Any) -> str:
        answer = cloud.runtime.invoke_endpoint(EndpointName="e", TargetModel="a.tar.gz", Body=b"{}", **more)
        return str(answer["InvokedProductionVariant"])

    assert Counter(called() for _ in range(8)) == {"big": 6, "small": 2}
    assert {called(TargetVariant="small") for _ in range(3)} == {"small"}


def test_no_call_is_lost_or_mixed_up(cloud: Cloud) -> None:
    """Each of many concurrent calls gets the answer of its own model to its own body."""
    for name in "abc":
        cloud.put_model(f"{name}.tar.gz", answer=name)
    cloud.deploy(count=2)
    faults: list[Any] = []

    def call(worker: int) -> None:
        for number in range(15):
            name, body = "abc"[(worker + number) % 3], f"{worker}-{number}"
            answer = cloud.invoke(f"{name}.tar.gz", body)
            if (answer["answer"], answer["body"]) != (name, body):
                faults.append((name, body, answer))

    workers = [threading.Thread(target=call, args=(worker,)) for worker in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert faults == []
    assert all(len(container.loads) <= 3 for container in cloud.factory.started)


def test_asynchronous_and_streaming_calls_are_refused_by_name(cloud: Cloud) -> None:
    """Asynchronous and streaming calls are rejected by name."""
    cloud.deploy()
    with faulted("ValidationError", 400, "operation"):
        cloud.runtime.invoke_endpoint_async(EndpointName="e", InputLocation="s3://models/in")
    with faulted("ValidationError", 400, "operation"):
        cloud.runtime.invoke_endpoint_with_response_stream(EndpointName="e", Body=b"{}")
