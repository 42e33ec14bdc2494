"""The target of a load test, and the form of its calls."""

from __future__ import annotations

import argparse
import http.server
import json
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from fakes.refusals import refused
from fakes.scaling_session import Session

from cohost.errors import RoutingError, StackError
from cohost.report.run import Model, Target
from cohost.report.samples import Outcome
from load_tests import LoadError
from load_tests.targets import Destination, Resolved, resolve
from load_tests.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]


def given(**changes: Any) -> argparse.Namespace:
    """The options that choose a target."""
    facts = {
        "host": None,
        "endpoint": None,
        "stack": "LmiCohostStack",
        "catalog": str(ROOT / "model_configs" / "encoders.yaml"),
        "models": None,
        "target_model": None,
        "inference_component": None,
        "task": None,
    }
    return argparse.Namespace(**{**facts, **changes})


class Answering(http.server.BaseHTTPRequestHandler):
    """A server that lists models, and stores posted bodies and the token of each listing."""

    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, dict[str, str], bytes]]
    tokens: list[str | None]
    models: tuple[str, ...] = ("mdeberta",)

    def do_GET(self) -> None:
        """DJL Serving's list of models."""
        self.tokens.append(self.headers["x-cohost-token"])
        self._answer(json.dumps({"models": [{"modelName": name} for name in self.models]}).encode())

    def do_POST(self) -> None:
        """Answer with one result."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        self._answer(b'[{"label": "a", "score": 1.0}]')

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[tuple[str, type[Answering]]]:
    """Start a server, and return its address and the class with its records."""
    handler = type("Handler", (Answering,), {"seen": [], "tokens": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", handler
        running.shutdown()
        thread.join()


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dummy credentials and no profile."""
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")


@pytest.mark.process
def test_a_container_lists_its_models(server: tuple[str, type[Answering]]) -> None:
    """Without --models all models of the container are called, with the tasks from the catalog."""
    found = resolve(given(host=server[0] + "/"))

    assert [(model.name, model.task) for model in found.models] == [("mdeberta", "text-classification")]
    assert found.destinations[0].path == "/invocations?model_name=mdeberta"
    assert found.container
    assert found.credentials is None


@pytest.mark.process
@pytest.mark.parametrize("models", [None, {"xlmr-large": 1.0}])
def test_a_container_s_own_names_are_the_catalog_s(
    server: tuple[str, type[Answering]], models: dict[str, float] | None
) -> None:
    """A container's model `xlmr_large` is recognised as `xlmr-large` of the catalog."""
    server[1].models = ("xlmr_large",)

    found = resolve(given(host=server[0], models=models, catalog=str(ROOT / "model_configs/offline.yaml")))

    assert [(model.name, model.task) for model in found.models] == [("xlmr-large", "text-classification")]
    assert found.destinations[0].path == "/invocations?model_name=xlmr_large"


@pytest.mark.process
def test_a_container_that_was_told_a_name_keeps_it(server: tuple[str, type[Answering]]) -> None:
    """A container whose models have the catalog's names is called by these."""
    server[1].models = ("xlmr-large",)

    found = resolve(given(host=server[0], catalog=str(ROOT / "model_configs/offline.yaml")))

    assert [model.name for model in found.models] == ["xlmr-large"]
    assert found.destinations[0].path == "/invocations?model_name=xlmr-large"


@pytest.mark.usefixtures("stack")
def test_a_component_s_model_is_called_by_the_server_s_name(stack: Session) -> None:
    """A component's model is called by the server's name, and reported by the catalog's."""
    stack.outputs["Models"] = '{"xlmr-large": "xlmr-large"}'

    found = resolve(given(catalog=str(ROOT / "model_configs/offline.yaml")))

    assert [model.name for model in found.models] == ["xlmr-large"]
    assert found.destinations[0].headers["X-Amzn-SageMaker-Custom-Attributes"] == "model_name=xlmr_large"


@pytest.mark.process
def test_a_containers_token_goes_with_every_request(
    server: tuple[str, type[Answering]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request to a container has the token from the environment variable; without one the header is missing."""
    assert resolve(given(host=server[0])).destinations[0].headers == {}
    monkeypatch.setenv("COHOST_CONTAINER_TOKEN", "the-token")
    found = resolve(given(host=server[0]))
    assert found.destinations[0].headers == {"x-cohost-token": "the-token"}
    assert server[1].tokens == [None, "the-token"]


@pytest.mark.usefixtures("credentials")
def test_an_endpoint_by_name_needs_no_stack() -> None:
    """--endpoint works without a stack; facts that only a stack has are unknown."""
    found = resolve(given(endpoint="my-endpoint", target_model="mdeberta.tar.gz"))

    assert found.destinations == (
        Destination("/endpoints/my-endpoint/invocations", {"X-Amzn-SageMaker-Target-Model": "mdeberta.tar.gz"}),
    )
    assert found.target.emulated
    assert found.target.instance_type is None
    assert found.models[0].model_id == "MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7"


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Session:
    """A scale-to-zero stack that all look-ups see."""
    playing = Session()
    playing.outputs["Models"] = '{"mdeberta": "mdeberta", "minilm": "minilm"}'
    monkeypatch.setattr(boto3, "Session", lambda: playing)
    return playing


COMPONENT_CALL = Destination(
    "/endpoints/lmi-cohost/invocations",
    {
        "X-Amzn-SageMaker-Inference-Component": "lmi-cohost-models",
        "X-Amzn-SageMaker-Custom-Attributes": "model_name=mdeberta",
    },
)


@pytest.mark.usefixtures("stack")
def test_a_scale_to_zero_stack_is_called_by_its_component() -> None:
    """A scale-to-zero stack's outputs name component and models; the report gets image and instances."""
    found = resolve(given())

    assert found.destinations[0] == COMPONENT_CALL
    assert [model.name for model in found.models] == ["mdeberta", "minilm"]
    assert found.target.inference_component_name == "lmi-cohost-models"
    assert (found.target.topology, found.target.image) == ("scale-to-zero", "the image")
    assert (found.target.instance_type, found.target.instance_count) == ("ml.g5.xlarge", 1)


@pytest.mark.usefixtures("stack")
def test_a_component_can_be_named_beside_its_endpoint() -> None:
    """--inference-component works with --endpoint without a stack."""
    found = resolve(given(endpoint="lmi-cohost", inference_component="lmi-cohost-models", models={"mdeberta": 1.0}))

    assert found.destinations == (COMPONENT_CALL,)
    assert found.target.image == "the image"


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"target_model": "mdeberta.tar.gz"}, "address-of-other-topology"),
        ({"models": {"NLI": 1.0}, "task": "text-classification"}, "model-not-deployed"),
        (
            {"endpoint": "e", "inference_component": "c", "models": {"a;model_name=b": 1.0}, "task": "x"},
            "model-name-unusable",
        ),
    ],
)
def test_a_component_that_is_addressed_wrongly_is_told(changes: dict[str, Any], code: str) -> None:
    """A wrong archive, model or name of a component is rejected before any call."""
    with refused(code, kind=RoutingError):
        resolve(given(**changes))


@pytest.mark.usefixtures("stack")
def test_the_components_of_an_endpoint_are_named() -> None:
    """The error for an endpoint with components lists them, so a user can name one."""
    with refused("component-unnamed", "--inference-component", kind=LoadError) as caught:
        resolve(given(endpoint="lmi-cohost"))
    assert caught.value.allowed == "lmi-cohost-models"


def test_a_multi_model_endpoint_has_no_component(stack: Session) -> None:
    """A component for a multi-model endpoint is rejected before any call."""
    del stack.outputs["InferenceComponentName"]

    with refused("component-unfit", "--inference-component", kind=LoadError):
        resolve(given(endpoint="e", inference_component="c", models={"mdeberta": 1.0}))


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"host": "ftp://x"}, "host-invalid", "--host"),
        ({"host": "http://x/path"}, "host-invalid", "--host"),
        ({"host": "http://127.0.0.1:9"}, "host-unreachable", "--host"),
        ({"host": "http://127.0.0.1:9", "models": {"x": 1.0}}, "task-unknown", "model x"),
        ({"endpoint": "e", "catalog": "nowhere.yaml"}, "models-unnamed", "--endpoint"),
    ],
)
@pytest.mark.usefixtures("credentials")
def test_a_target_that_cannot_be_used_is_told(changes: dict[str, Any], code: str, field: str) -> None:
    """A target that cannot be used is rejected with the fix before any call."""
    with refused(code, field, kind=LoadError) as caught:
        resolve(given(**changes))
    assert caught.value.fix


@pytest.mark.usefixtures("credentials")
def test_a_stack_that_cannot_be_read_is_told() -> None:
    """A stack that cannot be read is rejected before any call."""
    with refused("stack-unreachable", "stack LmiCohostStack", kind=StackError):
        resolve(given())


def resolved(url: str, signed: Credentials | None) -> Resolved:
    """A target at a URL."""
    return Resolved(
        target=Target(kind="sagemaker", url=url, region="us-east-1"),
        models=(Model(name="m", task="text-classification"),),
        destinations=(Destination("/endpoints/e/invocations", {"X-Amzn-SageMaker-Target-Model": "m.tar.gz"}),),
        revisions=(None,),
        credentials=signed,
    )


@pytest.mark.process
def test_a_call_is_the_one_that_boto3_makes(server: tuple[str, type[Answering]]) -> None:
    """A call has boto3's path, header fields and body, and the signature of botocore's own signer."""
    url, handler = server
    credentials, body = Credentials("key", "secret", "token"), '{"inputs": "안녕"}'.encode()
    client = boto3.client(
        "sagemaker-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        aws_session_token="token",
    )
    kind = "application/json"
    client.invoke_endpoint(EndpointName="e", TargetModel="m.tar.gz", Body=body, ContentType=kind, Accept=kind)[
        "Body"
    ].read()
    client.close()

    own = resolved(url, credentials)
    transport = Transport(own, 60)
    exchange = transport.send(own.destinations[0], body)
    transport.close()

    (theirs_path, theirs, theirs_body), (path, ours, ours_body) = handler.seen
    assert (exchange.status, exchange.broken) == (200, None)
    assert (path, ours_body) == (theirs_path, theirs_body)
    names = ("x-amzn-sagemaker-target-model", "content-type", "accept", "x-amz-security-token", "host")
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}
    assert ours["authorization"] == _signature(url + path, ours, body, credentials)


def _signature(url: str, headers: dict[str, str], body: bytes, credentials: Credentials) -> str:
    """Return botocore's signature of a request as it arrived, for the time that the request states."""
    signed = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    request = AWSRequest("POST", url, headers={n: headers[n] for n in signed if n != "host"}, data=body)
    request.context["timestamp"] = headers["x-amz-date"]
    signer = SigV4Auth(credentials, "sagemaker", "us-east-1")
    signature = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return headers["authorization"].partition("Signature=")[0] + f"Signature={signature}"


@pytest.mark.process
def test_connections_are_kept_and_counted(server: tuple[str, type[Answering]]) -> None:
    """Ten calls one after the other need one connection, which sends without delay."""
    own = resolved(server[0], None)
    transport = Transport(own, 60)
    for _ in range(10):
        assert transport.send(own.destinations[0], b"{}").status == 200
    assert transport.connections_opened == 1
    (kept,) = transport._pool._socket_queue.queue
    assert kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "the end of a long body would wait for the network"
    transport.close()


def test_what_the_network_does_is_an_outcome() -> None:
    """A refused connection is an outcome of the call and raises no exception."""
    own = resolved("http://127.0.0.1:9", None)

    exchange = Transport(own, 1).send(own.destinations[0], b"{}")

    assert exchange.broken is Outcome.CONNECTION
    assert exchange.done >= exchange.sent
