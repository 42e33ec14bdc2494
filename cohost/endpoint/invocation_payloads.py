"""A call's body, the meaning of its answer or error, and an example call to paste into a shell.

Answers of DJL's Java translators are converted to the shape of the handlers, so that callers can ignore the difference.
A translator answers one text with its labels or its vector, and a list of texts with a list of these; every
other handler answers with a list, one result per text (DJL 0.36.0: TextClassificationServingTranslator,
TextEmbeddingServingTranslator).
"""

from __future__ import annotations

import json
import shlex
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeGuard

from cohost.endpoint.copies import is_no_capacity
from cohost.errors import InvocationError, ModelNotReadyError, NoCapacityError, WorkerStoppedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.exceptions import BotoCoreError, ClientError

    from cohost.routing import Route


MAX_BODY_BYTES = 6_291_456
"""SageMaker's limit of a real-time request (API reference: InvokeEndpoint, Body)."""

NOT_READY = "ModelNotReadyException"
MODEL_ERROR = "ModelError"
_WORKER_STOPPED = "Backend Python process is stopped."


def make_body(model: str, inputs: object, parameters: Mapping[str, object] | None) -> bytes:
    """Return the body of a call, as JSON in UTF-8.

    Raises:
        InvocationError: it is empty, or too large to be sent.
    """
    if inputs in ("", [], {}, None):
        raise InvocationError(
            "inputs-empty",
            f"inputs of {model}",
            "is empty",
            allowed="a text, a pair or a list of them",
            fix="give at least one text",
        )
    # `parameters: null` is an error to the stock handler, so the key is left out.
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


def read_answer(model: str, answer: bytes) -> Any:  # the shape depends on the task
    """Parse the content of an answer.

    Raises:
        InvocationError: it is a sentence instead of results.
    """
    try:
        content = json.loads(answer)
    except ValueError:
        content = answer.decode(errors="replace")
    if isinstance(content, str):
        # The stock handler answers input that it cannot read with 200 and a sentence (DJL Serving 0.36.0).
        raise InvocationError(
            "answer-not-results",
            f"model {model}",
            f"answered 200 with a sentence instead of results: {content[:300]!r}",
            fix="send inputs and parameters of the model's task",
            status=200,
        )
    return content


def unreachable(model: str, error: BotoCoreError) -> InvocationError:
    """Return the error of a call that got no answer."""
    return InvocationError(
        "endpoint-unreachable",
        f"model {model}",
        f"cannot be called ({error})",
        fix="check the network, credentials and region",
    )


def is_worker_stopped(status: int, body: str) -> bool:
    """Return True if a container's answer means that the model's process has ended and the call did not reach it.

    Only the text shows it: a model answers 400 for other reasons too (DJL Serving 0.36.0, recordings 24 and 27).
    """
    if status != HTTPStatus.BAD_REQUEST:
        return False
    try:
        content = json.loads(body)
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("message") == _WORKER_STOPPED


def refusal_of(model: str, error: ClientError) -> InvocationError:
    """Convert an error of the service or the model to the most specific class."""
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
    """Format a container's answer as one line: the text of its JSON, in the shapes that DJL Serving uses."""
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
    """Convert an answer to a list with one result per text; an answer that no translator wrote is returned unchanged.

    Labels become `{"label", "score"}`: the best of each text, or with the parameter `top_k` a list of them. A
    translator does not read that parameter, and gives five labels at most.
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


def count_results(content: list[Any]) -> int:
    """Count the texts that an answer is about."""
    return 1 if _is_vector(content) or _are_classes(content) else len(content)


def _is_vector(content: Any) -> bool:
    """Return True if a value is one text's embedding.

    No other answer is a list of numbers; the first element decides, since there may be thousands.
    """
    return isinstance(content, list) and bool(content) and isinstance(content[0], float)


def _are_classes(content: Any) -> TypeGuard[list[dict[str, Any]]]:
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(one, dict) and one.keys() == {_NAME, _PROBABILITY} for one in content)
    )


def tiny_call(task: str | None) -> tuple[str, dict[str, object]]:
    """Return a short text, and the parameters that a model of this task requires (None: no task is known)."""
    parameters: dict[str, object] = {}
    if task == "zero-shot-classification":
        parameters["candidate_labels"] = ["shipping", "billing"]
    return "The delivery came two days early.", parameters


def call_of(route: Route, task: str, region: str) -> str:
    """Format the `aws` command that calls a route's model with one text, and with labels if its task needs some."""
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
