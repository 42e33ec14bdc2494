"""A request to load a model: JSON or query string."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from local_aws.lmi.archive import name_from_url
from local_aws.lmi.faults import BadRequest, JsonSyntax, NullPointer
from local_aws.lmi.model import Model
from local_aws.lmi.model_settings import java_int

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

logger = logging.getLogger(__name__)

# Number in a load request → property that it overrides.
_NUMBERS = {
    "batch_size": "batch_size",
    "max_batch_delay": "max_batch_delay",
    "max_idle_time": "max_idle_time",
    "job_queue_size": "job_queue_size",
    "min_worker": "cpu.minWorkers",
    "max_worker": "cpu.maxWorkers",
}
# What the real server's exceptions say (recorded: 01).
_NO_BODY = 'Cannot invoke "ai.djl.serving.http.LoadModelRequest.getModelUrl()" because "<local4>" is null'
_NO_URL = 'Cannot invoke "String.startsWith(String)" because "<parameter1>" is null'
_SHAPES = "See https://github.com/google/gson/blob/main/Troubleshooting.md#unexpected-json-structure"
_TOKENS = {list: "BEGIN_ARRAY", str: "STRING", int: "NUMBER", float: "NUMBER", bool: "BOOLEAN"}
_LAST_FIELD = re.compile(r'"([^"]*)"\s*:[^"]*$')


@dataclass(frozen=True)
class LoadRequest:
    """The model to load, and whether the answer waits until it is loaded."""

    model: Model
    synchronous: bool


def read_load_request(request: Request, body: bytes) -> LoadRequest:
    """Read `POST /models`: a JSON object where the content type says so, else the query string.

    A query without a model name takes it from the address. Where the real server fails with an exception of its own,
    the answer is that exception and the log says what is wrong with the request.

    Raises:
        NullPointer: the JSON object is missing, or has no url or no model_name.
        JsonSyntax: the body is no JSON object.
        BadRequest: the query has no url.
        NumberFormat: a number cannot be read.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        fields = _load_fields(body)
        url, name = _field(fields, "url", _NO_URL), _field(fields, "model_name", None)
    else:
        fields = dict(request.query_params)
        url = _parameter(fields, "url", "")
        name = _parameter(fields, "model_name", name_from_url(url))
    model = Model(name, url, overrides=_numbers(fields))
    return LoadRequest(model, str(fields.get("synchronous", "true")).lower() == "true")


def json_object(body: bytes) -> dict[str, Any]:
    """Read a body as a JSON object.

    Raises:
        BadRequest: it is none.
    """
    try:
        value = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"The body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("The body is not a JSON object.")
    return value


def _load_fields(body: bytes) -> dict[str, Any]:
    """Read the JSON object of a load request, with the real server's exceptions where it is none."""
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text) if text.strip() else None
    except ValueError as error:
        logger.warning("the body of a load request is not JSON: %s", error)
        raise JsonSyntax(_syntax_error(text, error)) from error
    if value is None:
        logger.warning("a load request has no body; send a JSON object with model_name and url")
        raise NullPointer(_NO_BODY)
    if not isinstance(value, dict):
        logger.warning("the body of a load request is not a JSON object with model_name and url")
        column = len(text) - len(text.lstrip()) + (2 if isinstance(value, list) else 1)
        token = _TOKENS[type(value)]
        raise JsonSyntax(f"Expected BEGIN_OBJECT but was {token} at line 1 column {column} path $\n{_SHAPES}")
    return value


def _syntax_error(text: str, error: ValueError) -> str:
    """Gson's words for a body that ends too early, as recorded; for any other fault the parser's own words of here."""
    position = getattr(error, "pos", 0)
    if text[position:].strip():
        return str(error)
    field = _LAST_FIELD.search(text)
    line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    return f"End of input at line {line} column {column} path $.{field[1] if field else ''}"


def _field(fields: Mapping[str, Any], name: str, exception: str | None) -> str:
    """A field of the JSON object as text; numbers and truth values become text, as Gson reads them."""
    value = fields.get(name)
    if isinstance(value, dict | list):
        raise JsonSyntax(f"Expected a string but was {_TOKENS.get(type(value), 'BEGIN_OBJECT')} path $.{name}")
    if value is None or value == "":
        logger.warning("a load request has no %s; send a JSON object with model_name and url", name)
        raise NullPointer(exception)
    return value if isinstance(value, str) else json.dumps(value)


def _parameter(fields: Mapping[str, Any], name: str, default: str) -> str:
    value = fields.get(name) or default
    if not value:
        raise BadRequest(f"Parameter {name} is required.")
    return str(value)


def _numbers(fields: Mapping[str, Any]) -> dict[str, int]:
    """The numbers given; a negative one means "not given", as in the real server."""
    numbers = {target: java_int(str(fields[name])) for name, target in _NUMBERS.items() if name in fields}
    return {target: number for target, number in numbers.items() if number >= 0}
