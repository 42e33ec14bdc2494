"""The control plane's one address: reads `X-Amz-Target`, checks the request and runs the operation."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from local_aws.sagemaker.faults import InternalFailure, SerializationException, ServiceFault, UnknownOperationException
from local_aws.sagemaker.validation import check_request
from local_aws.sagemaker.wire import control_answer, control_fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    Operation = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]

_logger = logging.getLogger(__name__)

_TARGET_PREFIX = "SageMaker."


class ControlPlane:
    """Answers control plane requests; `operations` are those that the emulation has, by name."""

    def __init__(self, operations: Mapping[str, Operation]) -> None:
        self._operations = operations

    async def answer(self, request: Request) -> Response:
        """The answer to `POST /`, whatever happens."""
        try:
            operation = request.headers.get("x-amz-target", "").removeprefix(_TARGET_PREFIX)
            members = _members(await request.body())
            check_request(operation, members)
            return control_answer(await self._run(operation, members))
        except ServiceFault as fault:
            return control_fault(fault)
        except Exception:
            _logger.exception("a control plane request ended with a fault of the emulation")
            return control_fault(InternalFailure("The emulation failed; its log has the reason."))

    async def _run(self, operation: str, members: dict[str, Any]) -> dict[str, Any] | None:
        if (run := self._operations.get(operation)) is None:
            raise UnknownOperationException(f"{operation} is not part of this emulation of SageMaker")
        return await run(members)


def _members(body: bytes) -> dict[str, Any]:
    try:
        members = json.loads(body or b"{}")
    except ValueError:
        raise SerializationException("The body of the request is not JSON") from None
    if not isinstance(members, dict):
        raise SerializationException("The body of the request is not a JSON object")
    return members
