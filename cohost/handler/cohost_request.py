"""A request's bytes as inputs and parameters, by content type; everything that cannot be read is a 400.

The content types are those of the stock handler (DJL Serving 0.36.0), which answers 200 to what it cannot parse.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import Any, Protocol

from .cohost_errors import BadInputError, bad, shown

_JSON = "application/json"
_ACCEPTED = ("json", "*/*", "application/*")
_CSV_COLUMNS = ("inputs", "text", "text_pair")
_PARAMETER_NAMES = frozenset(
    {"candidate_labels", "hypothesis_template", "multi_label", "top_k", "function_to_apply", "truncation", "max_length"}
)


class Input(Protocol):
    """What this handler uses of `djl_python.Input`."""

    def get_property(self, key: str) -> Any: ...  # noqa: ANN401, D102 - as the server's
    def get_properties(self) -> dict[str, Any]: ...  # noqa: D102
    def get_as_bytes(self, key: str | None = None) -> bytes | None: ...  # noqa: D102
    def is_empty(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Call:
    """What a caller asks: any JSON value as `inputs`, and `parameters` by name."""

    inputs: Any
    parameters: dict[str, Any]


def read_call(request: Input) -> Call:
    """The request as a call.

    Raises:
        BadInputError: the body is not what its content type says, lacks "inputs", or no JSON answer is accepted.
    """
    accept = str(request.get_property("Accept") or _JSON).lower()
    if not any(kind in accept for kind in _ACCEPTED):
        raise bad("header Accept", accept, f"{_JSON}, or leave it out")
    content_type = str(request.get_property("Content-Type") or _JSON).lower()
    body = _text(request)
    if "json" in content_type:
        return _of_json(body)
    if "text/plain" in content_type:
        return Call([body], {})
    if "text/csv" in content_type:
        return Call(_of_csv(body), {})
    if content_type.startswith("application/x-www-form-urlencoded"):
        return Call(body, {})
    raise bad("header Content-Type", content_type, f"{_JSON}, text/plain or text/csv")


def _text(request: Input) -> str:
    try:
        return bytes(request.get_as_bytes() or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError(f"body: byte {error.start} is not UTF-8; send UTF-8, uncompressed") from error


def _of_json(text: str) -> Call:
    try:
        body = json.loads(text)
    except RecursionError as error:
        raise BadInputError("body: is nested too deeply; send an object with inputs and parameters") from error
    except ValueError as error:
        raise BadInputError(f"body: is no JSON ({error}); send an object with inputs and parameters") from error
    if not isinstance(body, dict):
        raise bad("body", body, 'an object such as {"inputs": "a text"}')
    parameters = body.get("parameters", {})
    if not isinstance(parameters, dict):
        raise bad("parameters", parameters, "an object, or leave it out")
    misplaced = sorted(_PARAMETER_NAMES & body.keys())
    if misplaced:
        raise BadInputError(f'{misplaced[0]}: stands beside inputs; put it into the object "parameters"')
    return Call(_inputs_of(body), parameters)


def _inputs_of(body: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    """The inputs; a body without that key may itself be a text or a pair, as for the stock handler."""
    if "inputs" in body:
        return body["inputs"]
    if "text" in body:
        return {key: body[key] for key in ("text", "text_pair") if key in body}
    raise BadInputError(f'inputs: is missing among {shown(sorted(body))}; send {{"inputs": "a text"}}')


def _of_csv(text: str) -> list[Any]:
    try:
        rows = list(csv.DictReader(io.StringIO(text)))
    except csv.Error as error:
        raise BadInputError(f"body: is no CSV ({error}); send a header line and a row a text") from error
    if not rows or not any(column in rows[0] for column in _CSV_COLUMNS[:2]):
        raise BadInputError("body: the CSV needs a header line and a row; the header is inputs, or text,text_pair")
    if "inputs" in rows[0]:
        return [row["inputs"] for row in rows]
    return [{key: value for key, value in row.items() if key in _CSV_COLUMNS and value is not None} for row in rows]
