"""AWS's JSON protocols: read a request, run its operation, and write its answer or error.

Source: Smithy, "AWS JSON 1.1 protocol" and "AWS restJson1 protocol". Timestamps are seconds since 1970. Errors have
their type in a header, and control plane errors in `__type` as well.
"""

from __future__ import annotations

import json
import logging
import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from local_aws.kit.errors import (
    InternalFailure,
    SerializationException,
    ServiceFault,
    UnknownOperationException,
    not_emulated,
)
from local_aws.kit.validation import check_request, service_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    Operation = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]

JSON_1_1 = "application/x-amz-json-1.1"


def request_id() -> str:
    """Make a new request id of the form that AWS services return in `x-amzn-RequestId`."""
    return str(uuid.uuid4())


def control_answer(members: dict[str, Any] | None) -> Response:
    """Return the HTTP answer for a control plane operation's output; for the output None its body is empty."""
    body = b"" if members is None else json.dumps(members, default=_encode).encode()
    return Response(body, media_type=JSON_1_1, headers={"x-amzn-RequestId": request_id()})


def control_fault(fault: ServiceFault) -> Response:
    """Return the HTTP answer for a control plane error, which boto3 raises as ClientError or one of its subclasses."""
    body = {"__type": fault.code, "Message": fault.message, "message": fault.message, **fault.members}
    return Response(
        json.dumps(body),
        fault.status,
        media_type=JSON_1_1,
        headers={"x-amzn-RequestId": request_id(), "x-amzn-ErrorType": fault.code},
    )


def runtime_fault(fault: ServiceFault, identity: str) -> Response:
    """Return the HTTP answer for an error of SageMaker Runtime, which boto3 raises as ModelError, for example.

    `identity` is the request's id.
    """
    headers = {"x-amzn-RequestId": identity}
    if fault.code:
        headers["x-amzn-ErrorType"] = fault.code
    body = {"Message": fault.message, "message": fault.message, **fault.members}
    return Response(json.dumps(body), fault.status, media_type="application/json", headers=headers)


def _encode(value: object) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"{type(value).__name__} has no JSON form")


_logger = logging.getLogger(__name__)


class ControlPlane:
    """The control plane of one service that speaks AWS JSON 1.1.

    Args:
        operations: the functions of the operations that the emulation supports, by the operation's name.
        service: botocore's name of the service.
        title: the service's name in error texts.
    """

    def __init__(self, operations: Mapping[str, Operation], *, service: str, title: str) -> None:
        self._operations = operations
        self._service = service
        self._title = title

    async def answer(self, request: Request) -> Response:
        """Run the operation that a `POST /` request names; return its answer, or an error answer for an exception."""
        try:
            prefix = f"{service_model(self._service).metadata['targetPrefix']}."
            operation = request.headers.get("x-amz-target", "").removeprefix(prefix)
            members = read_members(await request.body())
            check_request(operation, members, service=self._service, title=self._title)
            return control_answer(await self._run(operation, members))
        except ServiceFault as fault:
            return control_fault(fault)
        except Exception:
            _logger.exception("a control plane request ended with a fault of the emulation")
            return control_fault(InternalFailure())

    async def _run(self, operation: str, members: dict[str, Any]) -> dict[str, Any] | None:
        if (run := self._operations.get(operation)) is None:
            raise UnknownOperationException(not_emulated(operation, self._title))
        return await run(members)


def read_members(body: bytes) -> dict[str, Any]:
    """Return the members of a request's JSON body; an empty body has no members.

    Raises:
        SerializationException: the body is not a JSON object.
    """
    try:
        members = json.loads(body or b"{}")
    except ValueError:
        raise SerializationException("The body of the request is not JSON") from None
    if not isinstance(members, dict):
        raise SerializationException("The body of the request is not a JSON object")
    return members
