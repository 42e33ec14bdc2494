"""Read a request's bytes as inputs and parameters, and write answers as JSON text.

The accepted content types are those of DJL's own handler (DJL Serving 0.36.0). A body that cannot be read is answered
with HTTP 400; DJL's own handler answers 200. Each parameter is read by name; an unknown parameter is rejected with the
nearest known name. Answers have the same bytes as those of DJL's handler: indented by two, no blank after colons, no
NaN (Output.add_as_json, recorded).
"""

from __future__ import annotations

import csv
import difflib
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .cohost_errors import BadInputError, bad, fault, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


_INDENT = 2


def text_of(value: Any) -> str:
    """Return a small answer's value as JSON text.

    Raises:
        ValueError: the value holds NaN or an infinity.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=_INDENT, separators=(",", ":"))


def vector_text(numbers: Sequence[float], depth: int) -> str:
    """Return the JSON text of a list of finite numbers at a nesting depth, in the form that `text_of` writes.

    Embeddings have hundreds of thousands of numbers, and the module `json` indents each of them in Python code. Joining
    the numbers' texts directly takes a fifth of the time that `json` takes.
    """
    return list_text(map(repr, numbers), depth)


def list_text(items: Iterable[str], depth: int) -> str:
    """Return the JSON text of a list at a nesting depth, from the JSON texts of its items."""
    pad = " " * (_INDENT * (depth + 1))
    inner = f",\n{pad}".join(items)
    return f"[\n{pad}{inner}\n{' ' * (_INDENT * depth)}]" if inner else "[]"


LONGEST_FIRST = "longest_first"
ONLY_FIRST = "only_first"
ONLY_SECOND = "only_second"
OFF = "do_not_truncate"

_STRATEGIES = (LONGEST_FIRST, ONLY_FIRST, ONLY_SECOND, OFF)
_PADDINGS = (True, False, "longest", "do_not_pad", "max_length")
# DJL's own handler passes these two to its pipeline; here the engine forms the batches.
_WITHOUT_EFFECT = frozenset({"batch_size", "num_workers"})
_LENGTH_NAMES = frozenset({"truncation", "max_length", "padding"})


@dataclass(frozen=True, slots=True)
class Cut:
    """The truncation and padding of one request.

    `strategy` names the text of a pair to truncate; with `OFF`, a long text is rejected. `max_length` is in tokens, and
    `pad` pads to `max_length`. `second_field` is the name of the request's field that holds the second text of a pair,
    for error messages.
    """

    strategy: str
    max_length: int
    pad: bool = False
    second_field: str = "text_pair"


@dataclass(frozen=True, slots=True)
class LengthRule:
    """A model's length limits in tokens: maximum, minimum that still holds a token of text, and default.

    `truncation` is true if long texts are truncated by default.
    """

    limit: int
    shortest: int
    truncation: bool


def check_names(parameters: Mapping[str, Any], known: Collection[str]) -> None:
    """Reject parameters that the task does not know.

    Raises:
        BadInputError: a parameter is unknown; the error names the first one, and the nearest known name.
    """
    allowed = _WITHOUT_EFFECT | _LENGTH_NAMES | set(known)
    for name in parameters:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            fix = f"write {near[0]} if that is meant" if near else "leave it out"
            known = ", ".join(sorted(allowed))
            raise BadInputError(fault(f"parameters.{shown(name)[1:-1]}", "is not known", allowed=known, fix=fix))


def read_cut(parameters: Mapping[str, Any], rule: LengthRule, default: str = LONGEST_FIRST) -> Cut:
    """Return a request's parameters `truncation`, `max_length` (at most the model's limit) and `padding` as a `Cut`.

    Raises:
        BadInputError: one of the three parameters has a value that is not allowed.
    """
    strategy = default if rule.truncation else OFF
    wanted = parameters.get("truncation")
    if isinstance(wanted, bool):
        strategy = default if wanted else OFF
    elif wanted is not None:
        strategy = choice(parameters, "truncation", _STRATEGIES, default)
    length = parameters.get("max_length")
    if length is None:
        length = rule.limit
    elif isinstance(length, bool) or not isinstance(length, int) or length < rule.shortest:
        raise bad("parameters.max_length", length, f"a number of tokens from {rule.shortest} to {rule.limit}")
    padding = parameters.get("padding")
    if padding is not None and padding not in _PADDINGS:
        raise bad("parameters.padding", padding, "true, false or max_length")
    return Cut(strategy, min(length, rule.limit), pad=padding == "max_length")


def choice(parameters: Mapping[str, Any], name: str, allowed: Sequence[str], default: str) -> str:
    """Return the value of a parameter that must be one of several words; `default` if it is not given.

    Raises:
        BadInputError: the value is none of the words.
    """
    value = parameters.get(name)
    if value is None:
        return default
    if value not in allowed:
        raise bad(f"parameters.{name}", value, f"one of {', '.join(allowed)}")
    return str(value)


def flag(parameters: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return the value of a parameter that must be true or false; `default` if it is not given.

    Raises:
        BadInputError: the value is neither true nor false.
    """
    value = parameters.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad(f"parameters.{name}", value, "true or false")
    return value


_JSON = "application/json"
_ACCEPTED = ("json", "*/*", "application/*")
_BODY = "an object with inputs, and parameters if needed"
_CSV = "a header line, inputs or text,text_pair, and one row per text"
_CSV_COLUMNS = ("inputs", "text", "text_pair")
_PARAMETER_NAMES = frozenset(
    {"candidate_labels", "hypothesis_template", "multi_label", "top_k", "function_to_apply", "truncation", "max_length"}
)


class Input(Protocol):
    """The part of `djl_python.Input`, the server's class of requests, that this handler uses."""

    def get_property(self, key: str) -> Any: ...  # noqa: D102 - as the server's
    def get_properties(self) -> dict[str, Any]: ...  # noqa: D102
    def get_as_bytes(self, key: str | None = None) -> bytes | None: ...  # noqa: D102
    def is_empty(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request: any JSON value as `inputs`, and `parameters` by name."""

    inputs: Any
    parameters: dict[str, Any]


def read_call(request: Input) -> Call:
    """Parse a request's body by its content type.

    Raises:
        BadInputError: the body does not match its content type, lacks "inputs", or no JSON answer is accepted.
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
        raise BadInputError(
            fault("body", f"byte {error.start} is not UTF-8", fix="send UTF-8, uncompressed")
        ) from error


def _of_json(text: str) -> Call:
    try:
        body = json.loads(text)
    except RecursionError as error:
        raise BadInputError(fault("body", "is nested too deeply", allowed=_BODY)) from error
    except ValueError as error:
        raise BadInputError(fault("body", f"is not JSON ({error})", allowed=_BODY)) from error
    if not isinstance(body, dict):
        raise bad("body", body, 'an object such as {"inputs": "a text"}')
    parameters = body.get("parameters", {})
    if not isinstance(parameters, dict):
        raise bad("parameters", parameters, "an object, or leave it out")
    misplaced = sorted(_PARAMETER_NAMES & body.keys())
    if misplaced:
        raise BadInputError(fault(misplaced[0], "stands beside inputs", fix='put it into the object "parameters"'))
    return Call(_inputs_of(body), parameters)


def _inputs_of(body: dict[str, Any]) -> Any:
    """Return the value of `inputs`; a body with `text` instead is itself the input, as in DJL's own handler."""
    if "inputs" in body:
        return body["inputs"]
    if "text" in body:
        return {key: body[key] for key in ("text", "text_pair") if key in body}
    raise BadInputError(fault("inputs", f"is missing among {shown(sorted(body))}", fix='send {"inputs": "a text"}'))


def _of_csv(text: str) -> list[Any]:
    try:
        rows = list(csv.DictReader(io.StringIO(text)))
    except csv.Error as error:
        raise BadInputError(fault("body", f"is not CSV ({error})", allowed=_CSV)) from error
    if not rows or not any(column in rows[0] for column in _CSV_COLUMNS[:2]):
        raise BadInputError(fault("body", "is CSV without texts", allowed=_CSV))
    if "inputs" in rows[0]:
        return [row["inputs"] for row in rows]
    return [{key: value for key, value in row.items() if key in _CSV_COLUMNS and value is not None} for row in rows]
