"""The client: its requests, its results, and the class of each failure."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import ANY, Stubber
from fakes.refusals import refused

from cohost.endpoint.client import CohostClient
from cohost.endpoint.invocation_payloads import MAX_BODY_BYTES
from cohost.endpoint.stack_outputs import Deployment
from cohost.errors import InvocationError, ModelNotReadyError, NoCapacityError, RoutingError, WorkerStoppedError
from cohost.waiting import Clock

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


COMPONENT = dataclasses.replace(
    DEPLOYMENT,
    topology="scale-to-zero",
    models={"nli": "nli", "mini": "mini"},
    inference_component_name="lmi-cohost-models",
)
STOPPED = '{\n  "code": 400,\n  "type": "TranslateException",\n  "message": "Backend Python process is stopped."\n}\n'
"""Recorded (24, 27): what the server answers for a model whose worker process has ended."""
NO_CAPACITY = (
    "Inference Component has no capacity to process this request. ApplicationAutoScaling may be in-progress (if "
    "configured) or try to increase the capacity by invoking UpdateInferenceComponentRuntimeConfig API."
)


class Harness:
    """A client with fake services that answer as a test prepares; an unexpected request fails the test.

    Waiting takes no time: `pauses` holds how long it would have.
    """

    def __init__(self, deployment: Deployment = DEPLOYMENT) -> None:
        self.pauses: list[float] = []
        keys = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
        runtime = boto3.client("sagemaker-runtime", **keys)
        s3 = boto3.client("s3", **keys)
        sagemaker = boto3.client("sagemaker", **keys) if deployment.inference_component_name else None
        self.runtime, self.s3 = Stubber(runtime), Stubber(s3)
        self.sagemaker: Any = Stubber(sagemaker) if sagemaker else None
        self.stubbers = [stubber for stubber in (self.runtime, self.s3, self.sagemaker) if stubber]
        for stubber in self.stubbers:
            stubber.activate()
        clock = Clock(now=lambda: sum(self.pauses), sleep=self.pauses.append, jitter=lambda: 0.0)
        self.client = CohostClient(deployment, runtime=runtime, s3=s3, sagemaker=sagemaker, clock=clock)

    def answers(self, content: object, *, expected: dict[str, Any] | None = None) -> None:
        """Let the next call answer 200 with this content, as JSON unless it is bytes."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        response = {"Body": StreamingBody(io.BytesIO(data), len(data))}  # type: ignore[no-untyped-call]
        self.runtime.add_response("invoke_endpoint", response, expected)

    def fails(self, code: str, status: int, **fields: Any) -> None:
        """The next call fails with this error of the service."""
        message = fields.pop("message", "no")
        self.runtime.add_client_error("invoke_endpoint", code, message, status, modeled_fields=fields or None)

    def is_stopped(self, *, text: str = STOPPED, status: int = 400, code: str = "ModelError") -> None:
        """Let the next call get the error of a stopped process, or a similar one."""
        self.fails(code, 424, OriginalStatusCode=status, OriginalMessage=text, LogStreamArn="arn")

    def lists(self, *names: str) -> None:
        """Let the next listing of the live generation return these keys."""
        keys = [{"Key": f"p/0123456789ab/{name}"} for name in names]
        self.s3.add_response("list_objects_v2", {"Contents": keys}, {"Bucket": "bucket", "Prefix": "p/0123456789ab/"})

    def is_at_zero(self) -> None:
        """The next call is refused because no copy runs."""
        self.fails("ValidationError", 400, message=NO_CAPACITY)

    def has_copies(self, current: int, desired: int, status: str = "InService", **more: str) -> None:
        """Let the next description of the component have this number of copies."""
        arn = "arn:aws:sagemaker:us-east-1:123456789012:"
        answer = {
            "InferenceComponentName": "lmi-cohost-models",
            "InferenceComponentArn": f"{arn}inference-component/lmi-cohost-models",
            "EndpointName": "lmi-cohost",
            "EndpointArn": f"{arn}endpoint/lmi-cohost",
            "CreationTime": 0,
            "LastModifiedTime": 0,
            "InferenceComponentStatus": status,
            "RuntimeConfig": {"DesiredCopyCount": desired, "CurrentCopyCount": current},
            **more,
        }
        name = {"InferenceComponentName": "lmi-cohost-models"}
        self.sagemaker.add_response("describe_inference_component", answer, name)

    def nothing_is_left(self) -> None:
        """Assert that all prepared requests were made."""
        for stubber in self.stubbers:
            stubber.assert_no_pending_responses()


@pytest.fixture
def harness() -> Harness:
    """A client of a multi-model endpoint over stubs."""
    return Harness()


@pytest.fixture
def component() -> Harness:
    """A client of a scale-to-zero endpoint over stubs."""
    return Harness(COMPONENT)


def test_call_is_addressed_and_read(harness: Harness) -> None:
    """A call sends name, texts and parameters in the handler's form, and returns the parsed JSON."""
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
    """A body without parameters has no key `parameters`, because the stock handler rejects null."""
    harness.answers(
        [1], expected={"Body": b'{"inputs": ["a", "b"]}', **_any("EndpointName TargetModel ContentType Accept")}
    )

    assert harness.client.invoke("nli", ["a", "b"]) == [1]


@pytest.mark.parametrize("inputs", ["", [], {}, None])
def test_empty_inputs_are_not_sent(harness: Harness, inputs: object) -> None:
    """A call without inputs is rejected before a request."""
    with refused("inputs-empty", "inputs of nli", kind=InvocationError):
        harness.client.invoke("nli", inputs)


def test_body_over_the_service_s_limit_is_not_sent(harness: Harness) -> None:
    """A body over the limit is rejected with both sizes and the fix."""
    with refused("body-too-large", kind=InvocationError) as caught:
        harness.client.invoke("nli", "x" * MAX_BODY_BYTES)
    assert str(MAX_BODY_BYTES) in caught.value.allowed


def test_unknown_model_is_not_called(harness: Harness) -> None:
    """The client sends no request for a model that neither the outputs nor the live generation have."""
    harness.lists("nli.tar.gz", "mini.tar.gz", "README")

    with refused("model-not-deployed", "model", kind=RoutingError):
        harness.client.invoke("NLI", "a")


def test_model_pushed_since_the_deploy_is_found(harness: Harness) -> None:
    """A pushed model answers by its name at once, and S3 is listed only once."""
    harness.lists("nli.tar.gz", "new.tar.gz")
    harness.answers([1], expected={"TargetModel": "new.tar.gz", **_any("EndpointName Body ContentType Accept")})
    harness.answers([2])

    assert harness.client.invoke("new", "a") == [1]
    assert harness.client.invoke("new", "a") == [2]


def test_caller_who_may_not_list_still_hears_the_known_names(harness: Harness) -> None:
    """A caller without the right to list the bucket gets the names of the outputs in the error."""
    harness.s3.add_client_error("list_objects_v2", "AccessDenied", "no", 403)

    with refused("model-not-deployed", "model", kind=RoutingError):
        harness.client.invoke("other", "a")


def test_loading_model_is_asked_again(harness: Harness) -> None:
    """A call of a loading model, which gets 429, is repeated until the model answers."""
    harness.fails("ModelNotReadyException", 429)
    harness.fails("ModelNotReadyException", 429)
    harness.answers([1])

    assert harness.client.invoke("nli", "a") == [1]


def test_loading_model_is_asked_again_for_a_limited_time(harness: Harness) -> None:
    """Waiting for a load ends at its limit with SageMaker's message."""
    harness.fails("ModelNotReadyException", 429, message="still loading")

    with refused("model-not-ready", "model nli", kind=ModelNotReadyError) as caught:
        harness.client.invoke("nli", "a", ready_timeout_s=0)

    assert caught.value.status == 429
    assert "ModelNotReadyException: still loading" in caught.value.problem
    assert "ready_timeout_s" in caught.value.fix


def test_model_error_carries_the_model_s_status_and_words(harness: Harness) -> None:
    """The error of a failed call has the container's status and message."""
    harness.fails(
        "ModelError", 424, OriginalStatusCode=424, OriginalMessage='{\n "error": "too long"\n}', LogStreamArn="arn"
    )

    with refused("endpoint-answer", "model nli", kind=InvocationError) as caught:
        harness.client.invoke("nli", "a")

    assert caught.value.problem.endswith("ModelError: too long")
    assert (caught.value.status, caught.value.aws_code) == (424, "ModelError")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            '{\n  "code": 500,\n  "type": "EngineException",\n  "message": "Failed to initialize model: dtype"\n}\n',
            "EngineException: Failed to initialize model: dtype",
        ),
        ('{\n  "code": 500,\n  "type": "EngineException"\n}\n', "EngineException"),
        ('{"code":424,"message":"invoke handler failure","error":"too long"}', "invoke handler failure: too long"),
        ("plain\nwords", "plain words"),
        ("[1]", "[1]"),
    ],
)
def test_a_containers_words_are_told_without_their_json(harness: Harness, answer: str, told: str) -> None:
    """The error has the message from each of DJL Serving's forms of errors; another text is shown unchanged."""
    harness.fails("ModelError", 424, OriginalStatusCode=500, OriginalMessage=answer, LogStreamArn="arn")
    with refused("endpoint-answer") as caught:
        harness.client.invoke("nli", "a")
    assert caught.value.problem == f"the model answered 500 ModelError: {told}"


def test_sentence_with_status_200_is_an_error(harness: Harness) -> None:
    """An answer 200 with a sentence of the stock handler is an error."""
    harness.answers(b"Input Parsing failed. Ensure that the request payload is valid.")

    with refused("answer-not-results", "model nli", kind=InvocationError):
        harness.client.invoke("nli", "a")


def test_component_is_called_by_the_model_s_name(component: Harness) -> None:
    """A call of a component names the model in the custom attributes, beside the caller's own attributes."""
    component.answers(
        [1],
        expected={
            "EndpointName": "lmi-cohost",
            "InferenceComponentName": "lmi-cohost-models",
            "CustomAttributes": "trace=abc;model_name=nli",
            **_any("Body ContentType Accept"),
        },
    )

    assert component.client.invoke("nli", "a", custom_attributes="trace=abc") == [1]


@pytest.mark.parametrize("deployed", [{"xlmr-large": "xlmr-large"}, {"xlmr-large": "xlmr_large"}])
def test_component_s_model_is_called_by_the_server_s_name(deployed: dict[str, str]) -> None:
    """A call of a component uses the server's name of the model, even if the stack's outputs have the catalog's."""
    harness = Harness(dataclasses.replace(COMPONENT, models=deployed))
    attributes = {"CustomAttributes": "model_name=xlmr_large"}
    harness.answers([1], expected={**attributes, **_any("EndpointName InferenceComponentName Body ContentType Accept")})

    assert harness.client.invoke("xlmr-large", "a") == [1]


@pytest.mark.parametrize("model", ["NLI", "../nli", "nli.tar.gz", "", "lmi-cohost-models", "other"])
def test_unknown_model_of_a_component_is_not_called(component: Harness, model: str) -> None:
    """The client sends no request for a model that a component lacks, and does not look into S3."""
    with refused("model-not-deployed", "model", kind=RoutingError):
        component.client.invoke(model, "a")


def test_the_other_topology_s_argument_sends_nothing(harness: Harness, component: Harness) -> None:
    """An argument of the other topology raises an error that names the right argument, and no request is sent."""
    with refused("address-of-other-topology", "target_model", kind=RoutingError):
        component.client.invoke("nli", "a", target_model="nli.tar.gz")
    with refused("address-of-other-topology", "inference_component_name", kind=RoutingError):
        harness.client.invoke("nli", "a", inference_component_name="lmi-cohost-models")


def test_endpoint_at_zero_is_an_error_of_its_own(component: Harness) -> None:
    """An endpoint without copies raises its own error class, whose fix tells how to wait for a copy."""
    component.is_at_zero()

    with refused("no-capacity", "model nli", kind=NoCapacityError) as caught:
        component.client.invoke("nli", "a")
    assert "--wake" in caught.value.fix

    assert (caught.value.status, caught.value.aws_code, component.pauses) == (400, "ValidationError", [])


def test_waking_calls_once_and_then_looks(component: Harness) -> None:
    """A call that waits for a wake-up is rejected once; then the client polls without calls until a copy runs."""
    told: list[float] = []
    component.is_at_zero()
    component.has_copies(0, 0)
    component.has_copies(0, 1, "Updating")
    component.has_copies(0, 1, "Updating")
    component.has_copies(1, 1)
    component.answers([1])

    assert component.client.invoke("nli", "a", wake=True, notice=lambda now: told.append(now.waited_s)) == [1]
    component.nothing_is_left()
    assert (component.pauses, told) == ([2, 4, 8, 10], [0, 2, 6, 14])


def test_a_call_that_nobody_heard_is_made_again(component: Harness) -> None:
    """If no copy is requested after three minutes, the client calls again."""
    component.is_at_zero()
    for _ in range(20):  # after 2, 6, 14, 24 … 184 s
        component.has_copies(0, 0)
    component.is_at_zero()
    component.has_copies(1, 1)
    component.answers([1])

    assert component.client.invoke("nli", "a", wake=True) == [1]
    component.nothing_is_left()


def test_who_may_not_look_calls_now_and_then(component: Harness) -> None:
    """A caller without the right to describe the component waits by one call per minute."""
    component.is_at_zero()
    for _ in range(8):
        component.sagemaker.add_client_error("describe_inference_component", "AccessDeniedException", "no", 400)
    component.answers([1])

    assert component.client.invoke("nli", "a", wake=True) == [1]
    component.nothing_is_left()
    assert sum(component.pauses) == 64


def test_waking_has_a_limit(component: Harness) -> None:
    """A wait for a copy ends at its limit with the typed error and the waiting time."""
    component.is_at_zero()
    for _ in range(4):
        component.has_copies(0, 1, "Updating")

    with refused("no-capacity", kind=NoCapacityError) as caught:
        component.client.invoke("nli", "a", wake=True, wake_timeout_s=20)
    assert (sum(component.pauses), caught.value.status) == (20, 400)
    assert "--wake-timeout" in caught.value.fix


def test_a_component_that_has_failed_is_not_waited_for(component: Harness) -> None:
    """A failed inference component raises an error with SageMaker's reason at once, because waiting cannot help."""
    component.is_at_zero()
    component.has_copies(0, 1, "Failed", FailureReason="the archive is not there")

    with refused("copies-failed", kind=NoCapacityError) as caught:
        component.client.invoke("nli", "a", wake=True)
    assert "the archive is not there" in caught.value.problem


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        ("ValidationError", 400, "Endpoint lmi-cohost of account 123456789012 not found."),
        ("ValidationError", 400, "Inference Component x of endpoint lmi-cohost not found."),
        ("ModelError", 424, "no capacity to process this request"),
        ("ServiceUnavailable", 503, "try later"),
        ("InternalFailure", 500, "broken"),
    ],
)
def test_waking_repeats_no_other_fault(component: Harness, code: str, status: int, message: str) -> None:
    """A 400 that is not about capacity, or comes from a model, is raised at once."""
    component.fails(code, status, message=message)

    with pytest.raises(InvocationError) as caught:
        component.client.invoke("nli", "a", wake=True)

    assert not isinstance(caught.value, NoCapacityError)
    assert (caught.value.aws_code, component.pauses) == (code, [])


def test_waking_changes_nothing_on_a_multi_model_endpoint(harness: Harness) -> None:
    """`wake=True` has no effect on a multi-model endpoint, so the same code works on both topologies."""
    harness.answers([1])

    assert harness.client.invoke("nli", "a", wake=True) == [1]


BATCHED = dataclasses.replace(DEPLOYMENT, handlers={"nli": "batched", "mini": "stock"})


def test_model_that_is_restarted_is_asked_again() -> None:
    """A call that gets 400 during the restart of a batched model is repeated until the model answers."""
    harness = Harness(BATCHED)
    for _ in range(8):
        harness.is_stopped()
    harness.answers([1])

    assert harness.client.invoke("nli", "a") == [1]
    assert harness.pauses == [0.25, 0.5, 1, 2, 4, 5, 5, 5]


def test_restart_is_waited_for_two_minutes() -> None:
    """The client retries for two minutes during a restart, and its error names the option for a longer wait."""
    harness = Harness(BATCHED)
    for _ in range(29):  # after 0, 0.25, 0.75, 1.75, 3.75, 7.75, 12.75 … 117.75 and 120 s
        harness.is_stopped()

    with refused("worker-stopped", "model nli", kind=WorkerStoppedError) as caught:
        harness.client.invoke("nli", "a")
    assert "--restart-timeout" in caught.value.fix

    harness.nothing_is_left()
    assert (sum(harness.pauses), caught.value.status, caught.value.aws_code) == (120, 400, "ModelError")


@pytest.mark.parametrize(
    ("deployment", "whose"), [(BATCHED, "the process of handler stock"), (DEPLOYMENT, "its process")]
)
def test_process_that_nobody_restarts_is_not_waited_for_long(deployment: Deployment, whose: str) -> None:
    """A call of a stopped stock model is repeated for a short time only, and its error names the state."""
    harness = Harness(deployment)
    for _ in range(6):
        harness.is_stopped()

    with refused("worker-stopped", kind=WorkerStoppedError) as caught:
        harness.client.invoke("mini", "a")
    assert whose in caught.value.problem
    assert "handler: batched" in caught.value.fix

    harness.nothing_is_left()
    assert sum(harness.pauses) == 5


def test_way_back_is_the_topology_s() -> None:
    """The fix for a dead model depends on the topology: sleep and wake, or a changed address."""
    for deployment, way in ((DEPLOYMENT, "run `cdk deploy S`"), (COMPONENT, "run `cohost sleep` and `cohost wake`")):
        harness = Harness(deployment)
        harness.is_stopped()
        with refused("worker-stopped") as caught:
            harness.client.invoke("mini", "a", restart_timeout_s=0)
        assert way in caught.value.fix


def test_wait_in_vain_is_not_repeated_until_the_model_answers() -> None:
    """After a wait without success each further call is one request without a wait, until one is answered."""
    harness = Harness(BATCHED)
    for _ in range(7):
        harness.is_stopped()
    for _ in range(2):
        with refused("worker-stopped"):
            harness.client.invoke("mini", "a")
    assert sum(harness.pauses) == 5

    harness.answers([1])
    harness.is_stopped()
    harness.answers([2])

    assert [harness.client.invoke("mini", "a") for _ in range(2)] == [[1], [2]]
    assert sum(harness.pauses) > 5


def test_longer_limit_waits_again() -> None:
    """A call with its own time limit waits even if earlier calls waited without success."""
    harness = Harness(BATCHED)
    for _ in range(3):
        harness.is_stopped()
    harness.answers([1])
    with pytest.raises(WorkerStoppedError):
        harness.client.invoke("mini", "a", restart_timeout_s=0)

    assert harness.client.invoke("mini", "a", restart_timeout_s=60) == [1]


@pytest.mark.parametrize(
    "answer",
    [
        {"text": '{"code": 400, "message": "Backend Python process is stopped. Retry."}'},
        {"text": '{"code": 400, "message": "Parameter model_name is required."}'},
        {"text": '{"error": "Backend Python process is stopped."}'},
        {"text": '["Backend Python process is stopped."]'},
        {"text": "Backend Python process is stopped."},
        {"status": 424},
        {"status": 503},
    ],
)
def test_no_other_refusal_is_repeated(answer: dict[str, Any]) -> None:
    """Other answers 400 are not retried."""
    harness = Harness(BATCHED)
    harness.is_stopped(**answer)

    with pytest.raises(InvocationError) as caught:
        harness.client.invoke("nli", "a")

    assert not isinstance(caught.value, WorkerStoppedError)
    assert harness.pauses == []


def test_the_service_s_own_refusal_is_not_repeated() -> None:
    """The text of a stopped process leads to a retry only in an error of the model's container."""
    harness = Harness(BATCHED)
    harness.fails("ValidationError", 400, message=STOPPED)

    with refused("endpoint-answer"):
        harness.client.invoke("nli", "a")

    assert harness.pauses == []


def _any(names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), ANY)
