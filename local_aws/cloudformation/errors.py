"""Errors of the CloudFormation engine.

CloudFormationError    a request is refused; the caller sees `code` and the text
└── ValidationError    the code that CloudFormation uses for most refusals
ResourceFailure        creating, updating or deleting one resource failed; becomes the reason in the stack's events
"""

from __future__ import annotations

from local_aws.kit.query_protocol import CloudFormationError, ValidationError


class ResourceFailure(Exception):  # noqa: N818 - named after CloudFormation's CREATE_FAILED and its kin
    """An operation on one resource failed; the text is the reason that its event shows."""


def stack_not_found(name: str) -> ValidationError:
    """The refusal that boto3 users and the cdk CLI know as 'no such stack'."""
    return ValidationError(f"Stack with id {name} does not exist")


def change_set_not_found(name: str) -> CloudFormationError:
    """The refusal for a change set that is not there (wire code `ChangeSetNotFound`)."""
    return CloudFormationError("ChangeSetNotFound", f"ChangeSet [{name}] does not exist", status=404)
