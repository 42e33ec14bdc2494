"""The contract local_aws/lmi/openapi.yaml: every recording fits it, and so do answers to random requests."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as run_with
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from lmi_replay import VECTORS
from openapi_spec_validator import validate

import local_aws.lmi
from local_aws.lmi.server.routes import COUNTERS_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    from lmi_served import Served

SPEC = yaml.safe_load((Path(local_aws.lmi.__file__).parent / "openapi.yaml").read_text())
NO_OPERATION = {404, 405}
EXCEPTIONS = {"NullPointerException", "JsonSyntaxException"}  # of the real server, over load requests (recorded: 01)
ANSWERED_LATER = 60.0  # seconds; more would be a hang
ONE_WORKER = "cpu.minWorkers=1\ncpu.maxWorkers=1\n"


def operation_of(method: str, path: str) -> dict[str, Any] | None:
    """The operation of a request, None where the contract has none."""
    for template, operations in SPEC["paths"].items():
        if re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", template), path):
            found: dict[str, Any] | None = operations.get(method.lower())
            return found
    return None


def problems(method: str, path: str, status: int, body: bytes) -> list[str]:
    """Return the ways in which an answer does not fit the contract."""
    operation = operation_of(method, path)
    if operation is None:
        return [] if status in NO_OPERATION else [f"{method} {path}: no operation, answered {status}"]
    response = operation["responses"].get(str(status)) or operation["responses"].get(f"{status // 100}XX")
    if response is None:
        return [f"{method} {path}: {status} is not among {sorted(operation['responses'])}"]
    if "$ref" in response:
        response = SPEC["components"]["responses"][response["$ref"].rpartition("/")[2]]
    schema = response.get("content", {}).get("application/json", {}).get("schema")
    if schema is None:
        return []
    whole = {**schema, "components": SPEC["components"]}
    return [f"{method} {path}: {error.message}" for error in Draft202012Validator(whole).iter_errors(json.loads(body))]


def test_the_contract_is_valid_openapi_and_has_our_own_route() -> None:
    """The server's description is valid OpenAPI, and contains the project's own route."""
    validate(SPEC)
    assert COUNTERS_PATH in SPEC["paths"]


def test_every_recording_fits_the_contract() -> None:
    """The real server's answers fit the contract, except for one known exception."""
    found, seen = [], 0
    for file in sorted(VECTORS.glob("[0-9]*.json")):
        for vector in json.loads(file.read_text()).get("vectors", []):
            request, response = vector["request"], vector["response"]
            # Bodies are held shortened where they were long; two requests at once have no path.
            if "raw" in request or response["status"] is None or "TRUNCATED" in response["body"]:
                continue
            path = request["path"].partition("?")[0]
            body = b"{}" if request["method"] == "HEAD" else response["body"].encode()
            found += problems(request["method"], path, response["status"], body)
            seen += 1
    assert found == ["DELETE /models/fa: 500 is not among ['200', '404']"]
    assert seen > 650


@pytest.fixture(scope="module")
def fuzzed(served: Served) -> Iterator[Served]:
    """Return the shared container with a custom and a stock handler for these tests."""
    handler = "from djl_python import Output\n\ndef handle(inputs):\n    return Output().add_as_json({})\n"
    assert served.load("fuzzed", ONE_WORKER, handler).status_code == 200
    option = "option.model_id=lmi-cohost/tiny-minilm-nli\noption.task=text-classification\n"
    assert served.load("stock", option + ONE_WORKER).status_code == 200
    yield served
    for name in ("fuzzed", "stock"):
        served.run(served.client.delete(f"/models/{name}"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["inputs", "text", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
LOADS = st.dictionaries(
    st.sampled_from(["url", "model_name", "synchronous", "batch_size", "min_worker", "max_worker", "job_queue_size"]),
    JSON_VALUES,
    max_size=4,
)
BODIES = st.one_of(
    st.binary(max_size=60),
    JSON_VALUES.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"inputs": JSON_VALUES, "parameters": JSON_VALUES}).map(lambda v: json.dumps(v).encode()),
    LOADS.map(lambda value: json.dumps(value).encode()),
)
KINDS = st.sampled_from(
    [
        *("application/json", "text/plain", "text/csv", "a/b", "", "application/x-www-form-urlencoded"),
        *("multipart/form-data; boundary=x", "multipart/form-data", "application/json; charset=utf-16"),
    ]
)
NAMES = st.sampled_from(["fuzzed", "nope", "fuzzed/1", "%00", "..", ".", "%2e%2e", ""]) | st.text(max_size=6).map(quote)
PATHS = st.one_of(
    st.sampled_from([path for path in SPEC["paths"] if "{" not in path]),
    st.tuples(st.sampled_from([path for path in SPEC["paths"] if "{" in path]), NAMES).map(
        lambda pair: pair[0].replace("{name}", pair[1])
    ),
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#?"), max_size=20).map("/".__add__),
)
QUERIES = st.dictionaries(
    st.sampled_from(
        [
            "limit",
            "next_page_token",
            "min_worker",
            "max_worker",
            "model_name",
            "model_version",
            "url",
            "synchronous",
            "x",
        ]
    ),
    st.integers(-3, 3).map(str) | st.integers().map(str) | st.text(max_size=6),
    max_size=3,
)
ATTRIBUTES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30).map(str.strip)
METHODS = st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW"])


@run_with(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(method=METHODS, path=PATHS, query=QUERIES, body=BODIES, kind=KINDS, attributes=ATTRIBUTES)
def test_no_request_is_left_without_an_answer_of_the_contract(
    fuzzed: Served, method: str, path: str, query: dict[str, str], body: bytes, kind: str, attributes: str
) -> None:
    """Any method, path, query, header and body gets an answer of the contract in time, and never an internal 500."""
    if method == "DELETE" and "fuzzed" in path:
        method = "GET"  # the model is needed by what follows
    headers = {"X-Amzn-SageMaker-Custom-Attributes": attributes} | ({"Content-Type": kind} if kind else {})
    answer = _send(fuzzed, method, path, query, body, headers)
    assert answer.status_code != 500 or answer.json()["type"] in EXCEPTIONS, answer.text
    if answer.status_code >= 400 and method != "HEAD" and answer.content:
        assert {"code", "type"} <= answer.json().keys() or answer.status_code == 424
    declared = operation_of(method, path)
    if declared is not None and method != "HEAD":
        assert problems(method, path, answer.status_code, answer.content) == []


def _send(
    served: Served, method: str, path: str, query: dict[str, str], body: bytes, headers: dict[str, str]
) -> httpx.Response:
    """Send one request with its path unchanged, because httpx would normalize the path."""
    target = path + ("?" + "&".join(f"{key}={quote(value)}" for key, value in query.items()) if query else "")
    request = served.client.build_request(method, "/", content=body, headers=headers, timeout=ANSWERED_LATER)
    request.extensions["target"] = target.encode("ascii")
    answer: httpx.Response = served.run(served.client.send(request))
    return answer


@run_with(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES, kind=KINDS)
def test_no_body_breaks_the_stock_handler(fuzzed: Served, body: bytes, kind: str) -> None:
    """Any body gets one of the statuses of the stock handler; 204 is the answer to a form without a field."""
    headers = {"Content-Type": kind} if kind else {}
    answer = fuzzed.run(fuzzed.client.post("/models/stock/invoke", content=body, headers=headers))
    assert answer.status_code in {200, 204, 424}


@run_with(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES, kind=KINDS)
def test_no_body_breaks_the_loading_of_models(fuzzed: Served, body: bytes, kind: str) -> None:
    """A broken load request is rejected with the real server's exceptions."""
    headers = {"Content-Type": kind} if kind else {}
    answer = fuzzed.run(fuzzed.client.post("/models", content=body, headers=headers))
    assert answer.status_code in {400, 404, 409} or answer.json()["type"] in EXCEPTIONS
    assert problems("POST", "/models", answer.status_code, answer.content) == []


@run_with(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(
        st.binary(min_size=1, max_size=200),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60).map(
            lambda text: f"POST /models/fuzzed/invoke HTTP/1.1\r\nHost: x\r\n{text}\r\n\r\n".encode()
        ),
        st.binary(max_size=60).map(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: x\r\n\r\n".__add__),
    )
)
def test_no_bytes_break_the_connection_handling(fuzzed: Served, data: bytes) -> None:
    """Bytes that are no HTTP get a 400 or a closed connection, and the next caller is served."""
    address = fuzzed.client.base_url
    token = f"Host: 127.0.0.1\r\nx-cohost-token: {fuzzed.container.token}\r\n".encode()
    with socket.create_connection((address.host, address.port or 80), timeout=ANSWERED_LATER) as connection:
        connection.sendall(data.replace(b"Host: x\r\n", token))
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
    assert received == b"" or received.startswith(b"HTTP/1.1 ")
    assert b"HTTP/1.1 500" not in received
    assert fuzzed.run(fuzzed.client.get("/ping")).status_code == 200


def test_more_workers_than_a_machine_can_bear_are_refused(fuzzed: Served) -> None:
    """Too many workers, by PUT or by a model's properties, are rejected before any is started."""
    answer = fuzzed.run(fuzzed.client.put("/models/fuzzed?min_worker=1000&max_worker=1000"))
    assert (answer.status_code, answer.json()["type"]) == (400, "BadRequestException")
    assert "64" in answer.json()["message"]
    answer = fuzzed.load("many", "cpu.minWorkers=1000\ncpu.maxWorkers=1000\n", "def handle(inputs):\n    return None\n")
    assert answer.status_code == 500
    assert "cpu.minWorkers=1000" in answer.json()["message"]
