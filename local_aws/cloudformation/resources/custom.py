"""Custom::… and AWS::CloudFormation::CustomResource: the request to a Lambda function and the function's answer.

AWS: CloudFormation user guide, "Custom resource request/response objects". The emulation differs on purpose in one
point: if the function ends without an answer, the resource fails at once, whereas CloudFormation waits until
ServiceTimeout.

The function sends its answer by PUT to a URL of the emulator that contains a secret token; CloudFormation gives a
presigned S3 URL instead. The stack operation that waits for this token receives the body.
"""

from __future__ import annotations

import json
import queue
import secrets
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, ClassVar, Final

from botocore.exceptions import ClientError
from starlette.responses import Response

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType, physical_name
from local_aws.cloudformation.templates.intrinsics import as_text
from local_aws.cloudformation.templates.schemas import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from starlette.requests import Request as HttpRequest


DEFAULT_TIMEOUT_SECONDS: Final = 3600
PHYSICAL_ID_LIMIT: Final = 1024
POLL_SECONDS: Final = 0.05
LAST_WORDS_SECONDS: Final = 5.0
ANYTHING: Final = Schema(required=frozenset({"ServiceToken"}))


class CustomResource(ResourceType):
    """A resource whose work a Lambda function does.

    Args:
        responses: the receiver of the functions' answers.
    """

    type: ClassVar[str] = "AWS::CloudFormation::CustomResource"
    volatile: ClassVar[frozenset[str] | None] = None
    fixed: ClassVar[Mapping[str, str]] = {"ServiceToken": "Modifying service token is not allowed."}
    rolls_back_by_update: ClassVar[bool] = True

    def __init__(self, responses: Responses) -> None:
        self._responses = responses

    @property
    def schema(self) -> Schema:
        """A schema that allows any property and any attribute, and requires only the property ServiceToken."""
        return ANYTHING

    def unknown_properties(self, names: Iterable[str]) -> list[str]:  # noqa: ARG002 - takes every property
        """Return an empty list: a custom resource takes every property and passes it to the function."""
        return []

    def create(self, request: Request) -> Outcome:
        """Send a Create request to the function."""
        # A failed Create is followed by a Delete for this physical id, unless the answer names another id.
        request.initiated(physical_name(request.stack_name, request.logical_id, limit=PHYSICAL_ID_LIMIT))
        return self._exchange(request, "Create", {})

    def update(self, request: Request) -> Outcome:
        """Send an Update request to the function; if its answer has a new physical id, the resource was replaced."""
        old = {"OldResourceProperties": stringified(request.old_properties)}
        return self._exchange(request, "Update", {**old, "PhysicalResourceId": request.physical_id})

    def delete(self, request: Request) -> None:
        """Send a Delete request to the function."""
        self._exchange(request, "Delete", {"PhysicalResourceId": request.physical_id})

    def _exchange(self, request: Request, request_type: str, extra: Mapping[str, Any]) -> Outcome:
        token, url = self._responses.open()
        event = {
            "RequestType": request_type,
            "ServiceToken": request.properties["ServiceToken"],
            "ResponseURL": url,
            "StackId": request.stack_arn,
            "RequestId": str(uuid.uuid4()),
            "LogicalResourceId": request.logical_id,
            "ResourceType": request.type,
            **extra,
            "ResourceProperties": stringified(request.properties),
        }
        try:
            answer = _read_answer(self._await_answer(request, event, token), event)
        finally:
            self._responses.close(token)
        return _outcome(request, event, answer)

    def _await_answer(self, request: Request, event: Mapping[str, Any], token: str) -> bytes:
        call = _Invocation(request, event)
        call.start()
        deadline = time.monotonic() + _timeout_seconds(request.properties)
        while time.monotonic() < deadline:
            answer = self._responses.poll(token, POLL_SECONDS)
            if answer is None and not call.is_alive():
                # The answer may have come between the last poll and the end of the function.
                answer = self._responses.poll(token, 0)
                if answer is None:
                    raise ResourceFailure(call.ending())
            if answer is not None:
                # The function's last log lines must be written before a stack that is deleted removes the log group.
                call.join(timeout=LAST_WORDS_SECONDS)
                return answer
        raise ResourceFailure(
            "CloudFormation did not receive a response from your Custom Resource. Please check your logs for requestId "
            f"[{event['RequestId']}]. (ServiceTimeout of {_timeout_seconds(request.properties)} s is over)"
        )


class _Invocation(threading.Thread):
    """The thread that invokes the function of a custom resource; the function's answer arrives at `Responses`."""

    def __init__(self, request: Request, event: Mapping[str, Any]) -> None:
        super().__init__(name=f"custom-resource-{request.logical_id}", daemon=True)
        self._request = request
        self._event = event
        self._error = ""
        self._denial = ""

    def run(self) -> None:
        """Invoke the function and record its error, if it fails."""
        try:
            answer = self._request.client("lambda").invoke(
                FunctionName=self._event["ServiceToken"], Payload=json.dumps(self._event).encode()
            )
            if "FunctionError" in answer:
                payload = json.loads(answer["Payload"].read())
                self._error = f"{payload.get('errorType', '')}: {payload.get('errorMessage', '')}"
        except Exception as error:  # noqa: BLE001 - any exception becomes the reason of the resource's failure
            self._error = str(error)
            if isinstance(error, ClientError) and error.response["Error"].get("Code") == "AccessDeniedException":
                self._denial = str(error.response["Error"]["Message"])

    def ending(self) -> str:
        """Return the reason why the function sent no answer, for the stack's event.

        The text for an AccessDenied error is from aws-solutions/centralized-logging-with-opensearch#216.
        """
        if self._denial:
            return (
                f"Received response status [FAILED] from custom resource. Message returned: {self._denial} "
                f"(RequestId: {self._event['RequestId']})"
            )
        function = self._event["ServiceToken"]
        cause = f"failed without an answer ({self._error})" if self._error else "ended without an answer"
        return (
            f"The function {function} {cause}; its request was [{self._event['RequestId']}]. "
            "AWS would wait for ServiceTimeout (1 hour by default)."
        )


def stringified(value: Any) -> Any:
    """Convert properties to the form that functions receive, with every scalar as text."""
    if isinstance(value, dict):
        return {key: stringified(item) for key, item in value.items()}
    if isinstance(value, list):
        return [stringified(item) for item in value]
    return as_text(value)


def _timeout_seconds(properties: Mapping[str, Any]) -> int:
    stated = properties.get("ServiceTimeout")
    return DEFAULT_TIMEOUT_SECONDS if stated is None else int(stated)


def _read_answer(body: bytes, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parsed answer of a function.

    Raises:
        ResourceFailure: the answer is too long, is not JSON, lacks a Status, or belongs to another request.
    """
    if len(body) > ANSWER_LIMIT_BYTES:
        raise ResourceFailure(f"Response object is too long (over {ANSWER_LIMIT_BYTES} bytes).")
    try:
        answer = json.loads(body)
    except ValueError:
        raise ResourceFailure(f"Invalid response: it is no JSON: {body[:200]!r}") from None
    if not isinstance(answer, dict) or answer.get("Status") not in {"SUCCESS", "FAILED"}:
        raise ResourceFailure("Invalid response: Status must be SUCCESS or FAILED.")
    for key in ("StackId", "RequestId", "LogicalResourceId"):
        if answer.get(key) != event[key]:
            raise ResourceFailure(f"Invalid response: {key} is {answer.get(key)!r}, the request had {event[key]!r}.")
    return answer


def _outcome(request: Request, event: Mapping[str, Any], answer: Mapping[str, Any]) -> Outcome:
    physical_id = answer.get("PhysicalResourceId")
    if answer["Status"] == "FAILED":
        if event["RequestType"] == "Create" and physical_id:
            request.initiated(str(physical_id))
        raise ResourceFailure(
            "Received response status [FAILED] from custom resource. Message returned: "
            f"{answer.get('Reason', 'no reason given')} (RequestId: {event['RequestId']})"
        )
    if not physical_id or len(str(physical_id)) > PHYSICAL_ID_LIMIT:
        raise ResourceFailure(f"Invalid PhysicalResourceId: it must have 1 to {PHYSICAL_ID_LIMIT} characters.")
    return Outcome(physical_id=str(physical_id), attributes=answer.get("Data") or {})


PATH: Final = "/_cohost/cfn-response"
# The longest answer that CloudFormation takes (user guide, "Custom resource response objects").
ANSWER_LIMIT_BYTES: Final = 4096


class Responses:
    """Creates URLs with secret tokens and returns the answers that handlers of custom resources send to them.

    Args:
        endpoint_url: returns the emulator's URL.
    """

    def __init__(self, endpoint_url: Callable[[], str]) -> None:
        self._endpoint_url = endpoint_url
        self._waiting: dict[str, queue.Queue[bytes]] = {}

    def open(self) -> tuple[str, str]:
        """Return a new token, and the URL to which the function has to send its answer."""
        token = secrets.token_urlsafe(24)
        self._waiting[token] = queue.Queue()
        return token, f"{self._endpoint_url()}{PATH}/{token}"

    def poll(self, token: str, timeout_seconds: float) -> bytes | None:
        """Wait at most `timeout_seconds` for the answer with a token; return None if no answer has come."""
        try:
            return self._waiting[token].get(timeout=timeout_seconds) if timeout_seconds > 0 else self._now(token)
        except queue.Empty:
            return None

    def _now(self, token: str) -> bytes:
        return self._waiting[token].get_nowait()

    def deliver(self, token: str, answer: bytes) -> bool:
        """Pass an answer to the stack operation that waits for the token; return False if none waits."""
        if (inbox := self._waiting.get(token)) is None:
            return False
        inbox.put(answer)
        return True

    def close(self, token: str) -> None:
        """Forget a token; a function that sends an answer later gets status 404."""
        self._waiting.pop(token, None)

    async def receive(self, request: HttpRequest) -> Response:
        """Receive the answer that a custom resource's function sends by PUT."""
        token = request.path_params["token"]
        # The address takes no signature: a body is read only if an operation waits for it, and no further than its
        # length says that it is too long.
        if token in self._waiting:
            answer = bytearray()
            async for piece in request.stream():
                answer += piece
                if len(answer) > ANSWER_LIMIT_BYTES:
                    break
            if self.deliver(token, bytes(answer)):
                return Response(status_code=200)
        return Response("Nobody waits for this answer: it is late, or a second one.", 404)
