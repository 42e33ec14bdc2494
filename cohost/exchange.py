"""A call's body, and what its answer or its error means."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cohost.errors import InvocationError, ModelNotReadyError, NoCapacityError, WorkerStoppedError
from cohost.scaling.waking import is_no_capacity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.exceptions import BotoCoreError, ClientError

MAX_BODY_BYTES = 6_291_456
"""SageMaker's limit of a real-time request (API reference: InvokeEndpoint, Body)."""

NOT_READY = "ModelNotReadyException"
MODEL_ERROR = "ModelError"
_WORKER_STOPPED = "Backend Python process is stopped."


def make_body(model: str, inputs: object, parameters: Mapping[str, object] | None) -> bytes:
    """The body of a call, as JSON in UTF-8.

    Raises:
        InvocationError: it is empty, or too large to be sent.
    """
    if inputs in ("", [], {}, None):
        msg = (
            f"model {model!r}: inputs is empty; allowed: a text, a pair or a list of them; fix: give at least one text"
        )
        raise InvocationError(msg)
    # `parameters: null` is an error to the stock handler, so the key is left out.
    payload = {"inputs": inputs, **({"parameters": dict(parameters)} if parameters else {})}
    body = json.dumps(payload, ensure_ascii=False, allow_nan=False).encode()
    if len(body) > MAX_BODY_BYTES:
        msg = (
            f"model {model!r}: a body of {len(body)} bytes; allowed: {MAX_BODY_BYTES} bytes; "
            "fix: send the texts in several calls"
        )
        raise InvocationError(msg)
    return body


def read_answer(model: str, answer: bytes) -> Any:  # noqa: ANN401 - each task answers a shape of its own
    """The content of an answer.

    Raises:
        InvocationError: it is a sentence instead of results.
    """
    try:
        content = json.loads(answer)
    except ValueError:
        content = answer.decode(errors="replace")
    if isinstance(content, str):
        # The stock handler answers input that it cannot read with 200 and a sentence (DJL Serving 0.36.0).
        msg = f"model {model!r} answered 200 with a sentence instead of results: {content[:300]!r}"
        raise InvocationError(msg, status=200)
    return content


def unreachable(model: str, error: BotoCoreError) -> InvocationError:
    """What a call that got no answer is told."""
    return InvocationError(f"model {model!r} cannot be called: {error}; fix: check the network, credentials and region")


def is_worker_stopped(status: int, body: str) -> bool:
    """Tell whether a container's answer says that the model's process has ended and the call did not reach it.

    Only this text tells: a model answers 400 for other reasons too (DJL Serving 0.36.0, recordings 24 and 27).
    """
    if status != HTTPStatus.BAD_REQUEST:
        return False
    try:
        content = json.loads(body)
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("message") == _WORKER_STOPPED


def refused(model: str, error: ClientError) -> InvocationError:
    """The error to raise for one of the service or the model, of the class of its own where it has one."""
    response: Mapping[str, Any] = error.response
    code = response["Error"].get("Code", "")
    status = response.get("OriginalStatusCode") or response["ResponseMetadata"]["HTTPStatusCode"]
    message = response.get("OriginalMessage") or response["Error"].get("Message", str(error))
    where = "the model" if "OriginalStatusCode" in response else "the service"
    text = f"model {model!r}: {where} answered {status} {code}: {_said(str(message)).rstrip('.')}"
    if is_no_capacity(code, str(message)):
        fix = (
            "; fix: wait for it, with `cohost invoke --wake` or `client.invoke(…, wake=True)`, or wake it beforehand "
            "with `cohost wake`"
        )
        return NoCapacityError(text + fix, status=int(status), code=code)
    if code == MODEL_ERROR and is_worker_stopped(int(status), str(message)):
        return WorkerStoppedError(text, status=int(status), code=code)
    kind = ModelNotReadyError if code == NOT_READY else InvocationError
    return kind(text, status=int(status), code=code)


def _said(message: str) -> str:
    """Put a container's answer into one line: the words of its JSON, in the forms that DJL Serving gives it."""
    try:
        content = json.loads(message)
    except ValueError:
        content = None
    words = [content.get(key) for key in ("type", "message", "error")] if isinstance(content, dict) else []
    return " ".join((": ".join(str(word) for word in words if word) or message).split())
