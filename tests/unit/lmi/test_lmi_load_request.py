"""Load requests are read from JSON or query; what is missing is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.requests import Request

from local_aws.lmi.faults import BadRequest, Fault, NumberFormat
from local_aws.lmi.load_request import LoadRequest, read_load_request


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
    """Recorded (01): POST /models?url=file://…/xlmr/ registers xlmr, later when told so."""
    load = _read(query="url=file:///m/xlmr/&synchronous=false", content_type="")
    assert (load.model.name, load.synchronous) == ("xlmr", False)


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b'{"model_name": "m"}', "application/json", "Parameter url is required."),
        (b'{"url": "u"}', "application/json", "Parameter model_name is required."),
        (b"{}", "application/json; charset=utf-8", "Parameter url is required."),
        (b'{"url": 5, "model_name": "m"}', "application/json", "Parameter url is required."),
        (b"", "application/json", "The body is not JSON"),
        (b"\xff", "application/json", "The body is not JSON"),
        (b"[]", "application/json", "The body is not a JSON object"),
        (b'{"url": "u", "model_name": "m"}', "text/plain", "Parameter url is required."),
    ],
)
def test_what_is_missing_is_named(body: bytes, content_type: str, message: str) -> None:
    """Where the real server answers 500 with an exception of its own, the caller is told what to mend."""
    with pytest.raises(BadRequest, match=message):
        _read(body, content_type=content_type)


@pytest.mark.parametrize("value", ["x", 1.5, None, [1]])
def test_a_number_that_is_none_is_refused(value: Any) -> None:
    """Numbers are whole."""
    with pytest.raises(Fault) as caught:
        _read(json.dumps({"model_name": "m", "url": "u", "batch_size": value}).encode())
    assert isinstance(caught.value, NumberFormat)
