"""The client: what is sent, what comes back, and what each failure is called."""

from __future__ import annotations

import io
import json
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import ANY, Stubber

from cohost import client as client_module
from cohost.client import MAX_BODY_BYTES, CohostClient
from cohost.deployment import Deployment
from cohost.errors import InvocationError, RoutingError

DEPLOYMENT = Deployment(
    stack_name="S",
    endpoint_name="lmi-cohost",
    bucket="bucket",
    prefix="p/",
    generation="0123456789ab",
    model_data_url="s3://bucket/p/0123456789ab/",
    region="us-east-1",
    topology="multi-model",
    models={"nli": "nli.tar.gz", "mini": "mini.tar.gz"},
)


class Harness:
    """A client whose two services answer what a test tells them to; anything else that is sent fails the test."""

    def __init__(self) -> None:
        keys = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
        runtime = boto3.client("sagemaker-runtime", **keys)
        s3 = boto3.client("s3", **keys)
        self.runtime, self.s3 = Stubber(runtime), Stubber(s3)
        self.runtime.activate()
        self.s3.activate()
        self.client = CohostClient(DEPLOYMENT, runtime=runtime, s3=s3)

    def answers(self, content: object, *, expected: dict[str, Any] | None = None) -> None:
        """The next call answers 200 with this content, as JSON unless it is bytes."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        response = {"Body": StreamingBody(io.BytesIO(data), len(data))}  # type: ignore[no-untyped-call]
        self.runtime.add_response("invoke_endpoint", response, expected)

    def fails(self, code: str, status: int, **fields: Any) -> None:
        """The next call fails with this error of the service."""
        message = fields.pop("message", "no")
        self.runtime.add_client_error("invoke_endpoint", code, message, status, modeled_fields=fields or None)

    def lists(self, *names: str) -> None:
        """The next listing of the live generation shows these keys."""
        keys = [{"Key": f"p/0123456789ab/{name}"} for name in names]
        self.s3.add_response("list_objects_v2", {"Contents": keys}, {"Bucket": "bucket", "Prefix": "p/0123456789ab/"})


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    """A client over stubs, in which waiting takes no time."""
    monkeypatch.setattr(client_module.time, "sleep", lambda _: None)
    return Harness()


def test_call_is_addressed_and_read(harness: Harness) -> None:
    """A name, texts and parameters go out as the handler reads them; the JSON comes back as data."""
    harness.answers(
        [{"label": "entailment", "score": 0.9}],
        expected={
            "EndpointName": "lmi-cohost",
            "TargetModel": "nli.tar.gz",
            "Body": '{"inputs": "안녕", "parameters": {"top_k": 1}}'.encode(),
            "ContentType": "application/json",
            "Accept": "application/json",
        },
    )

    assert harness.client.invoke("nli", "안녕", {"top_k": 1}) == [{"label": "entailment", "score": 0.9}]


def test_no_parameters_are_left_out_of_the_body(harness: Harness) -> None:
    """The stock handler answers `parameters: null` with an error sentence."""
    harness.answers(
        [1], expected={"Body": b'{"inputs": ["a", "b"]}', **_any("EndpointName TargetModel ContentType Accept")}
    )

    assert harness.client.invoke("nli", ["a", "b"]) == [1]


@pytest.mark.parametrize("inputs", ["", [], {}, None])
def test_empty_inputs_are_not_sent(harness: Harness, inputs: object) -> None:
    """A call that can only fail does not cost a round trip."""
    with pytest.raises(InvocationError, match="inputs is empty"):
        harness.client.invoke("nli", inputs)


def test_body_over_the_service_s_limit_is_not_sent(harness: Harness) -> None:
    """The limit is told with both sizes and the way out."""
    with pytest.raises(InvocationError, match=f"allowed: {MAX_BODY_BYTES} bytes; fix: send the texts in several calls"):
        harness.client.invoke("nli", "x" * MAX_BODY_BYTES)


def test_unknown_model_is_not_called(harness: Harness) -> None:
    """No request leaves for a name that neither the outputs nor the live generation have."""
    harness.lists("nli.tar.gz", "mini.tar.gz", "README")

    with pytest.raises(RoutingError, match="allowed: mini, nli"):
        harness.client.invoke("NLI", "a")


def test_model_pushed_since_the_deploy_is_found(harness: Harness) -> None:
    """A pushed model answers by its name at once, and S3 is asked for it only once."""
    harness.lists("nli.tar.gz", "new.tar.gz")
    harness.answers([1], expected={"TargetModel": "new.tar.gz", **_any("EndpointName Body ContentType Accept")})
    harness.answers([2])

    assert harness.client.invoke("new", "a") == [1]
    assert harness.client.invoke("new", "a") == [2]


def test_caller_who_may_not_list_still_hears_the_known_names(harness: Harness) -> None:
    """The right to invoke is enough to use the client."""
    harness.s3.add_client_error("list_objects_v2", "AccessDenied", "no", 403)

    with pytest.raises(RoutingError, match="allowed: mini, nli"):
        harness.client.invoke("other", "a")


def test_loading_model_is_asked_again(harness: Harness) -> None:
    """A first call of a big model answers 429 for a while; the client waits for it."""
    harness.fails("ModelNotReadyException", 429)
    harness.fails("ModelNotReadyException", 429)
    harness.answers([1])

    assert harness.client.invoke("nli", "a") == [1]


def test_loading_model_is_asked_again_for_a_limited_time(harness: Harness) -> None:
    """Waiting has an end, with the service's own word as the reason."""
    harness.fails("ModelNotReadyException", 429, message="still loading")

    with pytest.raises(InvocationError, match="429 ModelNotReadyException: still loading") as caught:
        harness.client.invoke("nli", "a", ready_timeout_s=0)

    assert caught.value.status == 429


def test_model_error_carries_the_model_s_status_and_words(harness: Harness) -> None:
    """What the container said is told, not only that it failed."""
    harness.fails(
        "ModelError", 424, OriginalStatusCode=424, OriginalMessage='{\n "error": "too long"\n}', LogStreamArn="arn"
    )

    with pytest.raises(
        InvocationError, match=r'the model answered 424 ModelError: \{ "error": "too long" \}'
    ) as caught:
        harness.client.invoke("nli", "a")

    assert (caught.value.status, caught.value.code) == (424, "ModelError")


def test_sentence_with_status_200_is_an_error(harness: Harness) -> None:
    """The stock handler answers unreadable input with 200; a caller must not take that for a result."""
    harness.answers(b"Input Parsing failed. Ensure that the request payload is valid.")

    with pytest.raises(InvocationError, match="answered 200 with a sentence"):
        harness.client.invoke("nli", "a")


def _any(names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), ANY)
