"""Make a call's body, read its answer or error, and write an example call to paste into a shell.

DJL's Java translators, which serve ONNX models, answer in another JSON shape than the Python handlers, so their answers
are converted to the handlers' shape. A translator answers a single text with its labels or its vector, and a list of
texts with a list of such results. A handler always answers with a list, one result per text (DJL 0.36.0:
TextClassificationServingTranslator, TextEmbeddingServingTranslator).
"""

from __future__ import annotations

import contextlib
import json
import shlex
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeGuard

from cohost.endpoint.copies import is_no_capacity
from cohost.errors import InvocationError, ModelNotReadyError, NoCapacityError, WorkerStoppedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.response import StreamingBody

    from cohost.routing import Route


MAX_BODY_BYTES = 6_291_456
"""The largest body of a real-time request to SageMaker, in bytes (API reference: InvokeEndpoint, Body)."""

MOST_ANSWER_BYTES = 64 * 1024 * 1024
"""The longest answer that the client reads, in bytes. InvokeEndpoint's answer has 6,291,456 bytes at most (API
reference); the rest is a margin, and the limit protects the memory of the caller's program."""
PIECE_BYTES = 64 * 1024

NOT_READY = "ModelNotReadyException"
MODEL_ERROR = "ModelError"
_WORKER_STOPPED = "Backend Python process is stopped."


def make_body(model: str, inputs: object, parameters: Mapping[str, object] | None) -> bytes:
    """Return the body of a call, as JSON in UTF-8.

    Raises:
        InvocationError: the inputs are empty, or the body exceeds MAX_BODY_BYTES.
    """
    if inputs in ("", [], {}, None):
        raise InvocationError(
            "inputs-empty",
            f"inputs of {model}",
            "is empty",
            allowed="a text, a pair or a list of them",
            fix="give at least one text",
        )
    # DJL's own handler rejects `parameters: null`, so the key is left out if there are no parameters.
    payload = {"inputs": inputs, **({"parameters": dict(parameters)} if parameters else {})}
    body = json.dumps(payload, ensure_ascii=False, allow_nan=False).encode()
    if len(body) > MAX_BODY_BYTES:
        raise InvocationError(
            "body-too-large",
            f"inputs of {model}",
            f"a body of {len(body)} bytes",
            allowed=f"{MAX_BODY_BYTES} bytes",
            fix="send the texts in several calls",
        )
    return body


def read_bounded(model: str, body: StreamingBody) -> bytes:
    """Read a model's answer piece by piece and return it; an answer above MOST_ANSWER_BYTES is an error.

    Raises:
        InvocationError: the answer is longer; the connection is closed.
    """
    answer = bytearray()
    with contextlib.closing(body):
        for piece in body.iter_chunks(PIECE_BYTES):
            answer += piece
            if len(answer) > MOST_ANSWER_BYTES:
                raise InvocationError(
                    "answer-too-large",
                    f"model {model}",
                    f"answered with over {MOST_ANSWER_BYTES} bytes",
                    allowed=f"{MOST_ANSWER_BYTES} bytes",
                    fix="send fewer texts in one call",
                )
    return bytes(answer)


def read_answer(model: str, answer: bytes) -> Any:  # the shape depends on the task
    """Return the parsed JSON of a model's answer.

    Raises:
        InvocationError: the answer is a sentence instead of results.
    """
    try:
        content = json.loads(answer)
    except ValueError:
        content = answer.decode(errors="replace")
    if isinstance(content, str):
        # DJL's own handler answers inputs that it cannot parse with 200 and a sentence (DJL Serving 0.36.0).
        raise InvocationError(
            "answer-not-results",
            f"model {model}",
            f"answered 200 with a sentence instead of results: {content[:300]!r}",
            fix="send inputs and parameters of the model's task",
            status=200,
        )
    return content


def unreachable(model: str, error: BotoCoreError) -> InvocationError:
    """Return the error of a call to which neither SageMaker nor the model answered."""
    return InvocationError(
        "endpoint-unreachable",
        f"model {model}",
        f"cannot be called ({error})",
        fix="check the network, credentials and region",
    )


def is_worker_stopped(status: int, body: str) -> bool:
    """Return True if a container's answer means that the call did not reach the model, because its process has ended.

    The text of the answer decides, because status 400 has other causes too (DJL Serving 0.36.0, recordings 24 and 27).
    """
    if status != HTTPStatus.BAD_REQUEST:
        return False
    try:
        content = json.loads(body)
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("message") == _WORKER_STOPPED


def refusal_of(model: str, error: ClientError) -> InvocationError:
    """Convert boto3's error of a call to the most specific subclass of InvocationError."""
    response: Mapping[str, Any] = error.response
    aws_code = response["Error"].get("Code", "")
    status = int(response.get("OriginalStatusCode") or response["ResponseMetadata"]["HTTPStatusCode"])
    message = str(response.get("OriginalMessage") or response["Error"].get("Message", str(error)))
    where = "the model" if "OriginalStatusCode" in response else "the service"
    field, problem = f"model {model}", f"{where} answered {status} {aws_code}: {_said(message).rstrip('.')}"
    if is_no_capacity(aws_code, message):
        return NoCapacityError(
            "no-capacity",
            field,
            problem,
            fix="wait for it with `cohost invoke --wake` or `client.invoke(…, wake=True)`, or run `cohost wake` before",
            status=status,
            aws_code=aws_code,
        )
    if aws_code == MODEL_ERROR and is_worker_stopped(status, message):
        return WorkerStoppedError("worker-stopped", field, problem, status=status, aws_code=aws_code)
    if aws_code == NOT_READY:
        return ModelNotReadyError("model-not-ready", field, problem, status=status, aws_code=aws_code)
    return InvocationError("endpoint-answer", field, problem, status=status, aws_code=aws_code)


def _said(message: str) -> str:
    """Return a container's error as one line: `type`, `message` and `error` of DJL's JSON, else the whole text."""
    try:
        content = json.loads(message)
    except ValueError:
        content = None
    words = [content.get(key) for key in ("type", "message", "error")] if isinstance(content, dict) else []
    return " ".join((": ".join(str(word) for word in words if word) or message).split())


_NAME = "className"
_PROBABILITY = "probability"
_TOP_K = "top_k"


def as_results(content: Any, parameters: Mapping[str, object] | None = None) -> Any:
    """Convert a translator's answer to a list with one result per text; return any other answer unchanged.

    Without the parameter `top_k`, a text gets its best label as `{"label", "score"}`; with `top_k`, a text gets a list
    of at most `top_k` labels. A translator ignores `top_k` and answers with at most five labels per text.
    """
    if _is_vector(content):
        return [content]
    texts = [content] if _are_classes(content) else content
    if not isinstance(texts, list) or not texts or not all(map(_are_classes, texts)):
        return content
    ranked = [[{"label": one[_NAME], "score": one[_PROBABILITY]} for one in classes] for classes in texts]
    if parameters is None or _TOP_K not in parameters:
        return [classes[0] for classes in ranked]
    most = parameters[_TOP_K]
    return [classes[:most] if isinstance(most, int) else classes for classes in ranked]


def _is_vector(content: Any) -> bool:
    """Return True if a value is the embedding of one text.

    Only an embedding is a list of numbers. Only the first element of a list is checked, since an embedding may have
    thousands of elements.
    """
    return isinstance(content, list) and bool(content) and isinstance(content[0], float)


def _are_classes(content: Any) -> TypeGuard[list[dict[str, Any]]]:
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(one, dict) and one.keys() == {_NAME, _PROBABILITY} for one in content)
    )


def tiny_call(task: str | None) -> tuple[str, dict[str, object]]:
    """Return a short text and the parameters that a model of this task requires; `task` is None if it is unknown."""
    parameters: dict[str, object] = {}
    if task == "zero-shot-classification":
        parameters["candidate_labels"] = ["shipping", "billing"]
    return "The delivery came two days early.", parameters


def call_of(route: Route, task: str, region: str) -> str:
    """Return the `aws` command that calls a route's model with a short text, and with labels if its task needs them."""
    text, parameters = tiny_call(task)
    body = {"inputs": text, **({"parameters": parameters} if parameters else {})}
    return shlex.join(
        [
            *("aws", "sagemaker-runtime", "invoke-endpoint", "--region", region),
            *route.command_options(),
            *("--content-type", "application/json", "--cli-binary-format", "raw-in-base64-out"),
            *("--body", json.dumps(body), "/dev/stdout"),
        ]
    )
