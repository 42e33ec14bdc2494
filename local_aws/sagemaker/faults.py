"""The errors that SageMaker answers with, as exceptions that know their wire form.

ServiceFault
├── control plane (JSON 1.1; AWS API reference: "Common Errors" and the errors of each operation)
│   ├── ValidationException, ResourceLimitExceeded, SerializationException, UnknownOperationException
└── runtime (AWS API reference: InvokeEndpoint)
    ├── ValidationError, ModelError, ModelNotReadyException, ServiceUnavailable, InternalFailure
    └── PayloadTooLarge, ThrottlingException

Texts are the service's own where a public report quotes them; each such place names its source.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping


class ServiceFault(Exception):  # noqa: N818 - the base of faults that SageMaker names in several ways
    """An error answer: `code` is what boto3 reports as the error's code, `members` are further fields of the body."""

    code: ClassVar[str] = "InternalFailure"
    status: ClassVar[int] = HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, message: str | None, **members: str | int) -> None:
        self.message = message
        self.members: Mapping[str, str | int] = members
        super().__init__(message or self.code)


class ValidationException(ServiceFault):
    """A request to the control plane breaks a constraint or names what is not there."""

    code = "ValidationException"
    status = HTTPStatus.BAD_REQUEST


class ResourceLimitExceeded(ServiceFault):
    """A request asks for more instances than the account may have."""

    code = "ResourceLimitExceeded"
    status = HTTPStatus.BAD_REQUEST


class SerializationException(ServiceFault):
    """A body is not JSON, or a value is of another JSON type than the operation takes."""

    code = "SerializationException"
    status = HTTPStatus.BAD_REQUEST


class UnknownOperationException(ServiceFault):
    """The operation is not SageMaker's, or not part of this emulation."""

    code = "UnknownOperationException"
    status = HTTPStatus.BAD_REQUEST


class ValidationError(ServiceFault):
    """A call of the runtime is wrong, or names an endpoint or model that is not there."""

    code = "ValidationError"
    status = HTTPStatus.BAD_REQUEST


class ModelError(ServiceFault):
    """The container answered with an error, or not at all."""

    code = "ModelError"
    status = HTTPStatus.FAILED_DEPENDENCY


class ModelNotReadyException(ServiceFault):
    """The target model is still being fetched or loaded; the same call will succeed later."""

    code = "ModelNotReadyException"
    status = HTTPStatus.TOO_MANY_REQUESTS


class ServiceUnavailable(ServiceFault):
    """No instance of the variant can take the call at the moment."""

    code = "ServiceUnavailable"
    status = HTTPStatus.SERVICE_UNAVAILABLE


class ThrottlingException(ServiceFault):
    """There are more calls than the service lets through; its message is null (AWS API reference: "Common Errors")."""

    code = "ThrottlingException"
    status = HTTPStatus.BAD_REQUEST


class InternalFailure(ServiceFault):
    """A fault of the emulation itself."""


class PayloadTooLarge(ServiceFault):
    """The body of a call is larger than the runtime takes; the real answer has no error type, only its status."""

    code = ""
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def unsupported(what: str) -> ValidationException:
    """The refusal of a feature of SageMaker that this emulation does not have; silence would promise what is not so."""
    return ValidationException(f"{what} is not part of this emulation of SageMaker; leave it out to deploy here")
