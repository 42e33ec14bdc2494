"""A request to load a model: JSON or query string."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from local_aws.lmi.archive import name_from_url
from local_aws.lmi.faults import BadRequest
from local_aws.lmi.model import Model
from local_aws.lmi.model_settings import java_int

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

# Number in a load request → property that it overrides.
_NUMBERS = {
    "batch_size": "batch_size",
    "max_batch_delay": "max_batch_delay",
    "max_idle_time": "max_idle_time",
    "job_queue_size": "job_queue_size",
    "min_worker": "cpu.minWorkers",
    "max_worker": "cpu.maxWorkers",
}


@dataclass(frozen=True)
class LoadRequest:
    """The model to load, and whether the answer waits until it is loaded."""

    model: Model
    synchronous: bool


def read_load_request(request: Request, body: bytes) -> LoadRequest:
    """Reads `POST /models`: a JSON object where the content type says so, else the query string.

    A query without a model name takes it from the address. Where the real server answers 500 with a
    NullPointerException or a parser's exception, this one answers 400.

    Raises:
        BadRequest: the body is no JSON object, or url or model_name is missing.
        NumberFormat: a number cannot be read.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        fields = _json_object(body)
        default_name = None
    else:
        fields = dict(request.query_params)
        default_name = name_from_url(fields.get("url", ""))
    url = _text(fields, "url", None)
    model = Model(_text(fields, "model_name", default_name), url, overrides=_numbers(fields))
    return LoadRequest(model, str(fields.get("synchronous", "true")).lower() == "true")


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"The body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("The body is not a JSON object with model_name and url.")
    return value


def _text(fields: Mapping[str, Any], name: str, default: str | None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"Parameter {name} is required.")
    return value


def _numbers(fields: Mapping[str, Any]) -> dict[str, int]:
    """The numbers given; a negative one means "not given", as in the real server."""
    numbers = {target: java_int(str(fields[name])) for name, target in _NUMBERS.items() if name in fields}
    return {target: number for target, number in numbers.items() if number >= 0}
