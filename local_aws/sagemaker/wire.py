"""How answers look on the wire: JSON 1.1 for the control plane, REST JSON for the runtime.

AWS: "AWS JSON 1.1 protocol" and "AWS restJson1 protocol" of Smithy. Timestamps are epoch seconds, errors carry
their type in a header, and control plane errors in `__type` as well.
"""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

if TYPE_CHECKING:
    from local_aws.sagemaker.faults import ServiceFault

JSON_1_1 = "application/x-amz-json-1.1"


def request_id() -> str:
    """A new id for a request, as SageMaker returns it in `x-amzn-RequestId`."""
    return str(uuid.uuid4())


def control_answer(members: dict[str, Any] | None) -> Response:
    """A control plane operation's output; None stands for an operation without one, whose body is empty."""
    body = b"" if members is None else json.dumps(members, default=_encode).encode()
    return Response(body, media_type=JSON_1_1, headers={"x-amzn-RequestId": request_id()})


def control_fault(fault: ServiceFault) -> Response:
    """A control plane error, in the form that boto3 turns into ClientError and its typed subclasses."""
    body = {"__type": fault.code, "Message": fault.message, "message": fault.message, **fault.members}
    return Response(
        json.dumps(body),
        fault.status,
        media_type=JSON_1_1,
        headers={"x-amzn-RequestId": request_id(), "x-amzn-ErrorType": fault.code},
    )


def runtime_fault(fault: ServiceFault, identity: str) -> Response:
    """A runtime error, in the form that boto3 turns into ValidationError, ModelError and the like."""
    headers = {"x-amzn-RequestId": identity}
    if fault.code:
        headers["x-amzn-ErrorType"] = fault.code
    body = {"Message": fault.message, "message": fault.message, **fault.members}
    return Response(json.dumps(body), fault.status, media_type="application/json", headers=headers)


def _encode(value: object) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"{type(value).__name__} has no JSON form")
