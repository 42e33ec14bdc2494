"""Errors of AWS services as exceptions; each has an error code, an HTTP status and possibly further members.

ServiceFault
├── ValidationException, SerializationException, UnknownOperationException
└── InternalFailure

`not_emulated` returns the text for a feature of AWS that the emulation does not support.
Errors that only one service returns are in the errors.py of that service.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping


class ServiceFault(Exception):  # noqa: N818 - the subclasses have the names of AWS errors
    """An error answer: `code` is the error's code in boto3's ClientError, `members` are further fields of the body."""

    code: ClassVar[str] = "InternalFailure"
    status: ClassVar[int] = HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, message: str | None, **members: str | int) -> None:
        self.message = message
        self.members: Mapping[str, str | int] = members
        super().__init__(message or self.code)


class ValidationException(ServiceFault):
    """The error for a control plane request that violates a constraint or names a missing resource."""

    code = "ValidationException"
    status = HTTPStatus.BAD_REQUEST


class SerializationException(ServiceFault):
    """The error for a request body that is not JSON, or that has a value of the wrong JSON type."""

    code = "SerializationException"
    status = HTTPStatus.BAD_REQUEST


class UnknownOperationException(ServiceFault):
    """The error for an operation that the service does not have, or that this emulation does not support."""

    code = "UnknownOperationException"
    status = HTTPStatus.BAD_REQUEST


class InternalFailure(ServiceFault):
    """The error for a request that failed because of a fault of the emulator."""

    def __init__(self) -> None:
        super().__init__("The emulation failed; its log has the reason.")


def not_emulated(feature: str, service: str, *, allowed: str = "", fix: str = "") -> str:
    """Return the error text for an AWS feature that is not emulated; ignoring the feature silently would mislead."""
    text = f"{feature}: not part of this emulation of {service}"
    return text + (f"; allowed: {allowed}" if allowed else "") + (f"; fix: {fix}" if fix else "")
