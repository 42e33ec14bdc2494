"""The management routes: load requests in the real server's form, and two routes for counters."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.faults import faulted
from starlette.requests import Request

from local_aws.lmi.errors import Fault, JsonSyntax, NullPointer, NumberFormat
from local_aws.lmi.server.management import LoadRequest, read_load_request
from local_aws.lmi.server.routes import LmiApp
from local_aws.lmi.workers.metrics import ModelMetrics


def _get(path: str, query: str = "") -> tuple[int, bytes]:
    pool = SimpleNamespace(metrics=ModelMetrics(), waiting=0, workers=[])
    registry: Any = SimpleNamespace(models={"m": SimpleNamespace(pool=pool, pids=[])})
    sent: list[Any] = []
    scope: Any = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [],
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(LmiApp(registry)(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize(("setting", "status"), [(None, 400), ("false", 400), ("true", 200), ("TRUE", 200)])
def test_the_real_servers_route_tells_counters_when_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, status: int
) -> None:
    """The real server's route of counters needs SERVING_PROMETHEUS (recorded: 03), and the emulator's does not."""
    monkeypatch.delenv("SERVING_PROMETHEUS", raising=False)
    if setting is not None:
        monkeypatch.setenv("SERVING_PROMETHEUS", setting)
    answered, body = _get("/server/metrics")
    assert answered == status
    assert (b'QueueTime_count{Model="m"} 0' in body) is (status == 200)
    assert _get("/_cohost/metrics")[0] == 200
    assert _get("/_cohost/metrics", "x=1")[0] == 200
    assert _get("/_cohost/other")[0] == 404


def _read(body: bytes = b"", query: str = "", content_type: str = "application/json") -> LoadRequest:
    headers = [(b"content-type", content_type.encode())]
    scope = {"type": "http", "method": "POST", "path": "/models", "query_string": query.encode(), "headers": headers}
    return read_load_request(Request(scope), body)


def test_sagemakers_request_names_model_and_address() -> None:
    """{"model_name", "url"} is all that SageMaker sends."""
    load = _read(json.dumps({"model_name": "m", "url": "/opt/m"}).encode())
    assert (load.model.name, load.model.url, load.synchronous) == ("m", "/opt/m", True)


def test_numbers_override_properties_and_negative_ones_do_not_count() -> None:
    """A load request may set workers and batching; -1 is the real server's "not given"."""
    body = {"model_name": "m", "url": "u", "batch_size": 8, "min_worker": 2, "max_worker": -1}
    assert _read(json.dumps(body).encode()).model.overrides == {"batch_size": 8, "cpu.minWorkers": 2}


def test_a_query_takes_the_name_from_the_address() -> None:
    """A load request without a name registers the model by its address (recorded: 01)."""
    load = _read(query="url=file:///m/xlmr/&synchronous=false", content_type="")
    assert (load.model.name, load.synchronous) == ("xlmr", False)


NO_URL = 'Cannot invoke "String.startsWith(String)" because "<parameter1>" is null'


@pytest.mark.parametrize(
    ("body", "fault", "message"),
    [
        (b'{"model_name": "m"}', NullPointer, NO_URL),
        (b'{"url": "u"}', NullPointer, None),
        (b"{}", NullPointer, NO_URL),
        (b"", NullPointer, "LoadModelRequest.getModelUrl"),
        (b"null", NullPointer, "LoadModelRequest.getModelUrl"),
        (b'{"model_name":', JsonSyntax, "End of input at line 1 column 15 path $.model_name"),
        (b'{\n"url": ', JsonSyntax, "End of input at line 2 column 8 path $.url"),
        (b"{url}", JsonSyntax, "Expecting property name"),
        (b"\xff", JsonSyntax, "Expecting value"),
        (b"[]", JsonSyntax, "Expected BEGIN_OBJECT but was BEGIN_ARRAY at line 1 column 2 path $"),
        (b"5", JsonSyntax, "Expected BEGIN_OBJECT but was NUMBER"),
        (b'{"url": [], "model_name": "m"}', JsonSyntax, "Expected a string but was BEGIN_ARRAY path $.url"),
    ],
)
def test_a_broken_json_request_meets_the_real_servers_exceptions(
    body: bytes, fault: type[Fault], message: str | None
) -> None:
    """Recorded (01, exchanges 33 to 38): 500 with Java's own texts."""
    with pytest.raises(fault) as caught:
        _read(body)
    assert caught.value.status == 500
    assert (message is None and caught.value.message is None) or str(message) in str(caught.value.message)


def test_the_log_says_what_is_wrong_with_a_load_request(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the missing field of a load request, which the answer does not."""
    with pytest.raises(NullPointer):
        _read(b'{"url": "u"}')
    assert "no model_name" in caplog.text


def test_numbers_in_json_become_text() -> None:
    """A number in JSON is read as text, as by Gson."""
    assert _read(b'{"url": 5, "model_name": true}').model.name == "true"


@pytest.mark.parametrize("content_type", ["text/plain", ""])
def test_a_query_without_an_address_is_refused(content_type: str) -> None:
    """A body that is not declared as JSON is not read, so its url is missing (recorded: 01)."""
    with faulted("BadRequestException", 400, "Parameter url is required."):
        _read(b'{"url": "u", "model_name": "m"}', content_type=content_type)


@pytest.mark.parametrize("value", ["x", 1.5, None, [1]])
def test_a_number_that_is_none_is_refused(value: Any) -> None:
    """Numbers are whole."""
    with pytest.raises(Fault) as caught:
        _read(json.dumps({"model_name": "m", "url": "u", "batch_size": value}).encode())
    assert isinstance(caught.value, NumberFormat)
