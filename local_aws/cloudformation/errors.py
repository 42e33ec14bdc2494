"""Faults of the CloudFormation engine.

CloudFormationError    a request is refused; the caller sees `code` and the text
└── ValidationError    the code that CloudFormation uses for most refusals
ResourceFailure        creating, updating or deleting one resource failed; becomes the reason in the stack's events
"""

from __future__ import annotations


class CloudFormationError(Exception):
    """A request that is refused.

    Args:
        code: the error code of the query protocol, e.g. `AlreadyExistsException`.
        message: the text, in CloudFormation's own words where the cdk CLI compares it.
        status: HTTP status.
    """

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        self.code = code
        self.message = message
        self.status = status
        super().__init__(message)


class ValidationError(CloudFormationError):
    """A template, a parameter or a stack's state does not allow what is asked."""

    def __init__(self, message: str) -> None:
        super().__init__("ValidationError", message)


class ResourceFailure(Exception):  # noqa: N818 - named after CloudFormation's CREATE_FAILED and its kin
    """An operation on one resource failed; the text is the reason that its event shows."""


def stack_not_found(name: str) -> ValidationError:
    """The refusal that boto3 users and the cdk CLI know as 'no such stack'."""
    return ValidationError(f"Stack with id {name} does not exist")


def change_set_not_found(name: str) -> CloudFormationError:
    """The refusal for a change set that is not there (wire code `ChangeSetNotFound`)."""
    return CloudFormationError("ChangeSetNotFound", f"ChangeSet [{name}] does not exist", status=404)
