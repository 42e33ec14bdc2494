"""Evaluate the answers to calls, and store one sample per call.

Sources: AWS API reference, InvokeEndpoint (errors and the x-amzn-ErrorType header); DJL Serving 0.36.0 (an error's body
has `code` and `type`, but DJL's own handler answers unreadable input with status 200 and a sentence).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import numpy as np

from cohost.endpoint.copies import is_no_capacity
from cohost.endpoint.invocation_payloads import as_results, is_worker_stopped
from cohost.report.samples import SAMPLE, TICK, Outcome, Samples, merge

if TYPE_CHECKING:
    from collections.abc import Callable

    Row = tuple[float, float, float, int, int, int, int, int, int]
    Tick = tuple[float, int, float, float, float]

LARGE_ANSWER_BYTES = 65_536
"""The size above which an answer of embeddings is checked without parsing it.

The token embeddings of a long text are megabytes of digits, whose parsing takes longer than some calls.
"""

DETAIL_LENGTH = 160

_BY_ERROR_TYPE = {
    "ThrottlingException": Outcome.THROTTLED,
    "TooManyRequestsException": Outcome.THROTTLED,
    "ModelNotReadyException": Outcome.NOT_READY,
    "ModelError": Outcome.MODEL_ERROR,
}


@dataclass(frozen=True)
class Verdict:
    """The evaluation of an answer: the call's outcome, the HTTP status to count it under, and the text of a failure."""

    outcome: Outcome
    status: int
    detail: str = ""

    @property
    def failure(self) -> str:
        """Return the name, with the HTTP status, under which the failure is counted; empty for a success."""
        return "" if self.outcome is Outcome.OK else self.outcome.counted_as(self.status)


def judge(status: int, error_type: str, body: bytes, *, task: str, items: int, container: bool) -> Verdict:
    """Return the evaluation of the answer to a call.

    Args:
        status: the HTTP status.
        error_type: the header x-amzn-ErrorType; empty if the answer had none.
        body: the answer's bytes.
        task: the model's task, which decides the form of a result.
        items: the number of texts in the call, which the answer must have results for.
        container: True if a container answered without SageMaker in front of it.
    """
    if status == HTTPStatus.OK:
        fault = _fault_of(body, task, items)
        return Verdict(Outcome.OK if fault is None else Outcome.WRONG_ANSWER, status, fault or "")
    content = _object(body)
    detail = str(content.get("Message") or content.get("message") or body[:DETAIL_LENGTH].decode(errors="replace"))
    outcome = _outcome(error_type, detail, container=container)
    own = content.get("OriginalStatusCode")
    counted = own if isinstance(own, int) and own > 0 else status
    if outcome is Outcome.MODEL_ERROR:
        message = body.decode(errors="replace") if container else str(content.get("OriginalMessage"))
        outcome = Outcome.WORKER_STOPPED if is_worker_stopped(counted, message) else outcome
    return Verdict(outcome, counted, detail[:DETAIL_LENGTH])


def _outcome(error_type: str, detail: str, *, container: bool) -> Outcome:
    # The type may be followed by a URI (AWS restJson1 protocol).
    kind = error_type.partition(":")[0]
    if is_no_capacity(kind, detail):
        return Outcome.NO_CAPACITY
    return _BY_ERROR_TYPE.get(kind, Outcome.MODEL_ERROR if container else Outcome.REFUSED)


def _fault_of(body: bytes, task: str, items: int) -> str | None:
    """Return the fault in the body of an answer with status 200; None if the body has one valid result per text."""
    if len(body) > LARGE_ANSWER_BYTES and body.startswith(b"[[[["):
        # One item of an embedding ends with three brackets, its inner lists with two or one.
        found = body.count(b"]]]") if body.endswith(b"]]]]") else 0
        # NaN, null and texts have letters that numbers lack.
        if body.translate(None, _NUMBERS_AND_LISTS):
            return "an embedding with a value that is not a number"
        return None if found == items else f"{found} embeddings for {items} texts"
    try:
        content = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return f"not JSON: {body[:DETAIL_LENGTH].decode(errors='replace')}"
    # DJL's translators answer a call with one text without a list around the text's result.
    results = as_results(content)
    if not isinstance(results, list):
        return f"not a list of results: {json.dumps(content)[:DETAIL_LENGTH]}"
    if len(results) != items:
        return f"{len(results)} results for {items} texts"
    is_result = _FORMS[task]
    wrong = next((result for result in results if not is_result(result)), _NOTHING)
    return None if wrong is _NOTHING else f"not a result of {task}: {json.dumps(wrong)[:DETAIL_LENGTH]}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_class(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("label"), str) and _is_number(value.get("score"))


def _is_classification(value: object) -> bool:
    """Return True for a label with its score, or for a list of these, the answer to the parameter `top_k`."""
    return _is_class(value) or (isinstance(value, list) and bool(value) and all(map(_is_class, value)))


def _is_zero_shot(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    labels, scores = value.get("labels"), value.get("scores")
    if not isinstance(labels, list) or not isinstance(scores, list) or not len(labels) == len(scores) > 0:
        return False
    return all(isinstance(label, str) for label in labels) and all(map(_is_number, scores))


def _is_embedding(value: object, depth: int = 3) -> bool:
    """Return True for a list of numbers, or for nested lists of numbers, none of them empty, of at most `depth` levels.

    DJL's own handler answers a text with nested lists of shape 1 x tokens x numbers; a pooled answer is one list of
    numbers.
    """
    if not isinstance(value, list) or not value or depth == 0:
        return False
    return all(map(_is_number, value)) or all(_is_embedding(one, depth - 1) for one in value)


_FORMS: dict[str, Callable[[object], bool]] = {
    "text-classification": _is_classification,
    "zero-shot-classification": _is_zero_shot,
    "feature-extraction": _is_embedding,
}
_NUMBERS_AND_LISTS = b"0123456789.+-eE,[] \t\r\n"
_NOTHING = object()


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


class Recorder:
    """Records samples (one per call) and ticks (one per second, with the state of a process), in order of arrival.

    Each one is stored as a tuple, because filling an array row by row takes ten times as long.
    """

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._ticks: list[Tick] = []
        self._received: list[Samples] = []
        self._received_ticks: list[Samples] = []

    def add(self, row: Row) -> None:
        """Record a call; the row has the fields of SAMPLE, in their order."""
        self._rows.append(row)

    def tick(self, row: Tick) -> None:
        """Record a tick, the state of a process in one second; the row has the fields of TICK, in their order."""
        self._ticks.append(row)

    def take(self) -> dict[str, bytes]:
        """Remove and return the samples (one per call) and ticks (one per second), as bytes for another process."""
        rows, self._rows = self._rows, []
        ticks, self._ticks = self._ticks, []
        return {"samples": np.array(rows, SAMPLE).tobytes(), "ticks": np.array(ticks, TICK).tobytes()}

    def receive(self, parts: dict[str, bytes]) -> None:
        """Store the samples and ticks that another process removed with `take` and sent here."""
        self._received.append(np.frombuffer(parts["samples"], SAMPLE))
        self._received_ticks.append(np.frombuffer(parts["ticks"], TICK))

    def all(self) -> tuple[Samples, Samples]:
        """Return the samples (one per call) and ticks (one per second) of all processes, ordered by time."""
        samples = merge([*self._received, np.array(self._rows, SAMPLE)])
        ticks = merge([*self._received_ticks, np.array(self._ticks, TICK)], TICK)
        return np.sort(samples, order="planned"), np.sort(ticks, order="at")

    def clear(self) -> None:
        """Delete all recorded samples (one per call) and ticks (one per second), so that a new run can start."""
        self.__init__()  # type: ignore[misc]
