"""Errors in the form of AWS's JSON protocols, as exceptions that know their code, status and members."""

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


class SerializationException(ServiceFault):
    """A body is not JSON, or a value is of another JSON type than the operation takes."""

    code = "SerializationException"
    status = HTTPStatus.BAD_REQUEST


class UnknownOperationException(ServiceFault):
    """The operation is not SageMaker's, or not part of this emulation."""

    code = "UnknownOperationException"
    status = HTTPStatus.BAD_REQUEST


class InternalFailure(ServiceFault):
    """A fault of the emulation itself."""


def unsupported(what: str) -> ValidationException:
    """The refusal of a feature of SageMaker that this emulation does not have; silence would promise what is not so."""
    return ValidationException(f"{what} is not part of this emulation of SageMaker; leave it out to deploy here")
