"""The control plane's one address: reads `X-Amz-Target`, checks the request and runs the operation."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from local_aws.sagemaker.faults import InternalFailure, SerializationException, ServiceFault, UnknownOperationException
from local_aws.sagemaker.validation import check_request, service_model
from local_aws.sagemaker.wire import control_answer, control_fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    Operation = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]

_logger = logging.getLogger(__name__)


class ControlPlane:
    """Answers the requests of a service that speaks AWS JSON 1.1.

    Args:
        operations: those that the emulation has, by name.
        service: botocore's name of the service.
        title: the service's name in texts.
    """

    def __init__(
        self, operations: Mapping[str, Operation], *, service: str = "sagemaker", title: str = "SageMaker"
    ) -> None:
        self._operations = operations
        self._service = service
        self._title = title

    async def answer(self, request: Request) -> Response:
        """The answer to `POST /`, whatever happens."""
        try:
            prefix = f"{service_model(self._service).metadata['targetPrefix']}."
            operation = request.headers.get("x-amz-target", "").removeprefix(prefix)
            members = _members(await request.body())
            check_request(operation, members, service=self._service, title=self._title)
            return control_answer(await self._run(operation, members))
        except ServiceFault as fault:
            return control_fault(fault)
        except Exception:
            _logger.exception("a control plane request ended with a fault of the emulation")
            return control_fault(InternalFailure("The emulation failed; its log has the reason."))

    async def _run(self, operation: str, members: dict[str, Any]) -> dict[str, Any] | None:
        if (run := self._operations.get(operation)) is None:
            raise UnknownOperationException(f"{operation} is not part of this emulation of {self._title}")
        return await run(members)


def _members(body: bytes) -> dict[str, Any]:
    try:
        members = json.loads(body or b"{}")
    except ValueError:
        raise SerializationException("The body of the request is not JSON") from None
    if not isinstance(members, dict):
        raise SerializationException("The body of the request is not a JSON object")
    return members
