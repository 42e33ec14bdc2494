"""Errors of the CloudFormation engine.

CloudFormationError    a request is rejected; the caller sees `code` and the text
└── ValidationError    the code that CloudFormation uses for most rejections
ResourceFailure        creating, updating or deleting one resource failed; becomes the reason in the stack's events
"""

from __future__ import annotations

from local_aws.kit.errors import not_emulated
from local_aws.kit.query_protocol import QueryError


class CloudFormationError(QueryError):
    """The error for a request that CloudFormation rejects, with CloudFormation's error code."""


class ValidationError(CloudFormationError):
    """The error for a request that its template, a parameter or the stack's state does not allow."""

    def __init__(self, message: str) -> None:
        super().__init__("ValidationError", message)


class ResourceFailure(Exception):  # noqa: N818 - the name follows CloudFormation's status CREATE_FAILED
    """The error for a failed operation on one resource; the text is the reason that the resource's event shows."""


def unsupported(feature: str, *, allowed: str = "", fix: str = "") -> ValidationError:
    """Make the error for a feature that the emulation does not have."""
    return ValidationError(not_emulated(feature, "CloudFormation", allowed=allowed, fix=fix))


def stack_not_found(name: str) -> ValidationError:
    """Make the error for a stack that does not exist, with CloudFormation's text, which the cdk CLI compares."""
    return ValidationError(f"Stack with id {name} does not exist")


def change_set_not_found(name: str) -> CloudFormationError:
    """Make the error for a change set that does not exist (wire code `ChangeSetNotFound`)."""
    return CloudFormationError("ChangeSetNotFound", f"ChangeSet [{name}] does not exist", status=404)
