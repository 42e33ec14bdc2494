"""The inference routes: /ping, /invocations, /predictions/{name}, /models/{name}/invoke."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from local_aws.lmi.faults import BadRequest, Fault, ModelNotFound, NotReady, ResourceNotFound
from local_aws.lmi.http_protocol import connection_of
from local_aws.lmi.invocation import Invocation
from local_aws.lmi.model import Status
from local_aws.lmi.replies import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from local_aws.lmi.registry import Registry

_SERVER_ERROR = 500


def ping(registry: Registry) -> Reply:
    """The state of every model; 500 when one has failed."""
    models = registry.models.values()
    states = {model.name: {"status": model.health} for model in models}
    failed = any(model.status is Status.FAILED for model in models)
    return json_reply(states, _SERVER_ERROR if failed else HTTPStatus.OK)


async def infer(registry: Registry, request: Request, segments: Sequence[str], body: bytes, request_id: str) -> Reply:
    """Has a request answered by the model that its path, query, headers or form name.

    Raises:
        Fault: it names none or an unknown one, or the model cannot answer.
        Unanswered: the caller has left, or the server closes the connection without an answer.
    """
    invocation = Invocation(request, body)
    model = registry.get(_addressed(registry, invocation, segments))
    if request.method == "OPTIONS":
        return json_reply({})
    if model.status is not Status.READY or model.pool is None or model.settings is None:
        raise NotReady(model.name)
    properties = invocation.properties | {"requestId": request_id, "handler": model.settings.properties["handler"]}
    connection = connection_of(request.scope)
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
        # Models are registered without a version here, so no version is ever there.
        raise ModelNotFound(f"Model or workflow not found: {name}")
    return name


def _by_path(segments: Sequence[str]) -> tuple[str | None, str | None]:
    """(model name, version) of a path split at its slashes, whose first part is empty."""
    if segments[1] == "models":
        return segments[2], None
    if segments[1] == "predictions":
        if len(segments) < 3:  # noqa: PLR2004 - "", "predictions", name
            raise ResourceNotFound
        return segments[2], segments[3] if len(segments) > 3 else None  # noqa: PLR2004 - and a version
    return None, None
