"""The inference routes: /ping, /invocations, /predictions/{name}, /models/{name}/invoke.

An `Invocation` holds the parts of a request that reach a handler, and the name of the model that the request addresses.
Source: DJL Serving 0.36.0 (RequestParser, InferenceRequestHandler), recorded (03_invocations_routing,
23_cohost_custom_attributes).
"""

from __future__ import annotations

import asyncio
import email.parser
import email.policy
import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from local_aws.lmi.answers import Unanswered
from local_aws.lmi.errors import BadRequest, Fault, ModelNotFound, NotReady, ResourceNotFound
from local_aws.lmi.models.model import Status
from local_aws.lmi.server.http import Reply, connection_of, json_reply

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

    from starlette.requests import Request

    from local_aws.lmi.models.model import Model
    from local_aws.lmi.models.registry import Registry
    from local_aws.lmi.server.http import LmiHttpProtocol
    from local_aws.lmi.workers.connection import Content


CUSTOM_ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"

_MODEL_NAME = "model_name"
_MODEL_VERSION = "model_version"
_SPELLING = {"Sagemaker": "SageMaker", "Id": "Id"}


class Invocation:
    """The parts of a request that reach a handler.

    `properties` are headers and custom attributes. `contents` are query, form fields and body, in this order.
    """

    def __init__(self, request: Request, body: bytes) -> None:
        """Read the parts of a request.

        Raises:
            BadRequest: the request has a property `handler`, which would choose the handler function.
        """
        self._properties = _properties(request.headers.items())
        self._query = parse_qsl(request.url.query, keep_blank_values=True)
        self.contents: Sequence[Content] = [(key, value.encode()) for key, value in self._query]
        self.contents = [*self.contents, *_body_contents(request.headers.get("content-type", ""), body)]
        if "handler" in self._properties:
            raise BadRequest("The handler can't be overridden in a request")

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties' values by name, with capitals as in "Content-Type"."""
        return dict(self._properties.values())

    def value_of(self, name: str) -> str | None:
        """Return the property of this name in any letter case; None if there is none."""
        found = self._properties.get(name.lower())
        return None if found is None else found[1]

    @property
    def model_name(self) -> str | None:
        """Return the model name from the query, else a header or custom attribute, else a form field; None if none."""
        query = dict(reversed(self._query)).get(_MODEL_NAME)
        if query:
            return query
        if _MODEL_NAME in self._properties:
            return self._properties[_MODEL_NAME][1]
        return next((value.decode("utf-8", "replace") for key, value in self.contents if key == _MODEL_NAME), None)

    @property
    def model_version(self) -> str | None:
        """Return the model version from the query, else a header or custom attribute; None if there is none."""
        query = dict(reversed(self._query)).get(_MODEL_VERSION)
        return query if query is not None else self._properties.get(_MODEL_VERSION, ("", None))[1]


def _properties(headers: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return (name, value) of each property by its lower-case name; of equal names the last property counts."""
    properties: dict[str, tuple[str, str]] = {}
    for name, value in headers:
        if name == CUSTOM_ATTRIBUTES:
            pairs = (pair.split("=", 1) for pair in value.split(";") if "=" in pair)
            properties |= {key.strip().lower(): (key.strip(), text.strip()) for key, text in pairs}
        else:
            properties[name] = (_usual_spelling(name), value)
    return properties


def _usual_spelling(name: str) -> str:
    """Return a header's name with capitals as in "Content-Type", which handlers expect; ASGI gives lower case."""
    if "_" in name:
        return name
    return "-".join(_SPELLING.get(part, part) for part in name.title().split("-"))


def _body_contents(content_type: str, body: bytes) -> list[Content]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        return [(key, value.encode()) for key, value in fields]
    if kind.startswith("multipart/"):
        return _form_parts(content_type, body)
    return [("data", body)]


def _form_parts(content_type: str, body: bytes) -> list[Content]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    parts = message.iter_parts() if message.is_multipart() else []
    fields = [(part.get_param("name", header="content-disposition"), part.get_payload(decode=True)) for part in parts]
    return [(str(name), value) for name, value in fields if name and isinstance(value, bytes)]


_SERVER_ERROR = 500
_NEXT = "x-next-token"
_STARTING = "x-starting-token"


def ping(registry: Registry) -> Reply:
    """Answer /ping with the status of every model; the HTTP status is 500 if a model has failed."""
    models = registry.models.values()
    states = {model.name: {"status": model.health} for model in models}
    failed = any(model.status is Status.FAILED for model in models)
    return json_reply(states, _SERVER_ERROR if failed else HTTPStatus.OK)


class ReplyCache:
    """The answers to requests whose callers do not wait (`x-synchronous: false`), by the token that fetches the answer.

    As in the server's default cache, answers stay in memory; here only the newest `most` answers are kept.
    Source: DJL Serving 0.36.0 (docs/async_caching.md; InferenceRequestHandler), recorded (02v_tf590, exchange 79).
    """

    def __init__(self, most: int = 1000) -> None:
        self._replies: dict[str, Reply] = {}
        self._most = most
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, answer: Coroutine[None, None, Reply]) -> Reply:
        """Compute `answer` in the background; return the reply that gives the caller the token to fetch it with."""
        token = str(uuid.uuid4())
        headers = {_NEXT: token, CUSTOM_ATTRIBUTES: f"{_NEXT}={token}"}
        self._replies[token] = Reply(HTTPStatus.ACCEPTED, b"", headers, "The model result is not yet available")
        while len(self._replies) > self._most:
            del self._replies[next(iter(self._replies))]
        task = asyncio.create_task(self._finish(token, answer))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return Reply(HTTPStatus.OK, b"", headers)

    def get(self, token: str) -> Reply:
        """Return the answer to the request with this token; until it is complete, return an answer with status 202.

        Raises:
            BadRequest: no request has this token, or its answer is no longer kept.
        """
        reply = self._replies.get(token)
        if reply is None:
            raise BadRequest(f"Invalid {_STARTING}: {token}")
        return reply

    async def _finish(self, token: str, answer: Coroutine[None, None, Reply]) -> None:
        try:
            reply = await answer
        except Fault as fault:
            reply = Reply(_SERVER_ERROR, reason=fault.message)
        except Unanswered:
            # Requests with this token keep getting 202.
            return
        if token in self._replies:
            self._replies[token] = reply


async def infer(
    registry: Registry, cache: ReplyCache, request: Request, segments: Sequence[str], body: bytes, request_id: str
) -> Reply:
    """Return the answer of the model that the request's path, query, headers or form names.

    Raises:
        Fault: the request names no model or an unknown one, or the model cannot answer.
        Unanswered: the caller has left, or the server closes the connection without an answer.
    """
    invocation = Invocation(request, body)
    name = _addressed(registry, invocation, segments)
    token = invocation.value_of(_STARTING)
    if token is not None and request.method != "OPTIONS":
        return cache.get(token)
    if registry.is_leaving(name):
        raise NotReady(name)
    model = registry.get(name)
    if request.method == "OPTIONS":
        return json_reply({})
    # Java's Boolean.parseBoolean: whatever is not "true" is false.
    if (invocation.value_of("x-synchronous") or "true").lower() != "true":
        return cache.begin(_answer(model, invocation, request_id, None))
    return await _answer(model, invocation, request_id, connection_of(request.scope))


async def _answer(model: Model, invocation: Invocation, request_id: str, connection: LmiHttpProtocol | None) -> Reply:
    if model.status is not Status.READY or model.pool is None or model.settings is None:
        raise NotReady(model.name)
    properties = invocation.properties | {"requestId": request_id, "handler": model.settings.properties["handler"]}
    try:
        answer = await model.pool.submit(
            properties, invocation.contents, connection.belongs_to if connection is not None else None
        )
    except Fault as fault:
        model.pool.metrics.response(fault.status)
        raise
    model.pool.metrics.response(answer.code)
    reason = None if answer.code == HTTPStatus.OK else answer.message
    return Reply(answer.code, answer.body, answer.properties, reason)


def _addressed(registry: Registry, invocation: Invocation, segments: Sequence[str]) -> str:
    name, version = _by_path(segments)
    if name is None:
        name = invocation.model_name
    if name is None:
        name = registry.single_startup_model
    if name is None:
        raise BadRequest("Parameter model_name is required.")
    if version or invocation.model_version is not None:
        # Models are registered without a version here, so a request with a version finds none.
        raise ModelNotFound(f"Model or workflow not found: {name}")
    return name


def _by_path(segments: Sequence[str]) -> tuple[str | None, str | None]:
    """Return (model name, version) of a path, given as its parts between slashes; the first part is empty."""
    if segments[1] == "models":
        return segments[2], None
    if segments[1] == "predictions":
        if len(segments) < 3:  # noqa: PLR2004 - "", "predictions", name
            raise ResourceNotFound
        return segments[2], segments[3] if len(segments) > 3 else None  # noqa: PLR2004 - and a version
    return None, None
