"""The CloudFormation stacks of this project (existing and deleted), their resources, and a stack's deletion."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError

from cohost.deploy.cleanup.resource_types import (
    BUCKET,
    BUDGET,
    KINDS,
    LISTED,
    empty_bucket,
    name_in,
    names_by_arn,
    wait_until_steady,
)
from cohost.endpoint.stack_outputs import budget_name, describe_stack
from cohost.errors import CleanupError, reason_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import boto3

    from cohost.deploy.cleanup.resource_types import Polling


DESCRIPTION: Final = "lmi-cohost:"
"""The first word of the description of every stack of this project."""

_DELETED: Final = "DELETE_COMPLETE"
_ATTEMPTS: Final = 3


@dataclass(frozen=True, kw_only=True)
class OurStack:
    """One stack of this project. `arn` identifies the stack even after its deletion; the stack's name does not."""

    name: str
    arn: str
    status: str

    @property
    def gone(self) -> bool:
        """Return True if the stack is deleted; resources that the deletion retained may still exist."""
        return self.status == _DELETED


@dataclass(frozen=True, kw_only=True)
class StackResource:
    """One resource of a stack; `logical_id`, `type` and `status` are CloudFormation's.

    The name of a deleted SageMaker resource is known from its ARN only, so it is in lower case.
    """

    logical_id: str
    type: str
    name: str
    status: str

    @property
    def gone(self) -> bool:
        """Return True if the resource is deleted."""
        return self.status == _DELETED


def find_stacks(session: boto3.Session, name: str | None) -> list[OurStack]:
    """Return this project's stacks of one name, or all of them if the name is None; deleted stacks are included.

    CloudFormation lists a deleted stack for 90 days.
    """
    pages = session.client("cloudformation").get_paginator("list_stacks").paginate()
    return [
        OurStack(name=one["StackName"], arn=one["StackId"], status=one["StackStatus"])
        for page in pages
        for one in page["StackSummaries"]
        if (one.get("TemplateDescription") or "").startswith(DESCRIPTION) and name in {None, one["StackName"]}
    ]


def resources_of(session: boto3.Session, stack: OurStack) -> list[StackResource]:
    """Return the resources that a stack has, or that a deleted stack had, each with CloudFormation's status."""
    pages = session.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack.arn)
    listed = cache(partial(names_by_arn, session))

    def name(resource_type: str, physical_id: str, status: str) -> str:
        if resource_type == BUDGET:
            # The physical id is the budget's Id, which no operation of AWS Budgets takes.
            return budget_name(stack.name, session.region_name)
        in_id = name_in(physical_id)
        there = resource_type in LISTED and status != _DELETED
        return listed(resource_type).get(physical_id, in_id) if there else in_id

    return [
        StackResource(
            logical_id=one["LogicalResourceId"],
            type=one["ResourceType"],
            name=name(one["ResourceType"], one["PhysicalResourceId"], one["ResourceStatus"]),
            status=one["ResourceStatus"],
        )
        for page in pages
        for one in page["StackResourceSummaries"]
        if one.get("PhysicalResourceId")
    ]


def delete_stack(session: boto3.Session, stack: OurStack, polling: Polling, *, everything: bool) -> list[StackResource]:
    """Delete a stack: wait for operations that are under way, and repeat a deletion that failed.

    Return the resources that remain because CloudFormation could not delete them in several attempts. Objects that
    others put into the stack's bucket are deleted only with `everything`.

    Raises:
        CleanupError: the stack has termination protection, or an operation did not end within the limit of `polling`.
    """
    for attempt in range(_ATTEMPTS):
        _settle(session, stack, polling)
        failed = [one for one in resources_of(session, stack) if one.status == "DELETE_FAILED"] if attempt else []
        if attempt and not failed:
            return []
        for resource in failed:
            _make_deletable(session, resource, polling, everything=everything)
        _request(session, stack, retain=[one.logical_id for one in failed] if attempt == _ATTEMPTS - 1 else [])
    _settle(session, stack, polling)
    return failed


def _settle(session: boto3.Session, stack: OurStack, polling: Polling) -> None:
    cloudformation = session.client("cloudformation")

    def under_way() -> str | None:
        status = str(describe_stack(cloudformation, stack.arn)["StackStatus"])
        # A stack whose first change set was never executed stays in REVIEW_IN_PROGRESS for ever.
        return status if status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS" else None

    polling.until(f"stack {stack.name}", under_way)


def _request(session: boto3.Session, stack: OurStack, *, retain: Sequence[str]) -> None:
    cloudformation = session.client("cloudformation")
    try:
        cloudformation.delete_stack(StackName=stack.arn, RetainResources=retain)
    except ClientError as error:
        reason = reason_of(error)
        if "TerminationProtection" not in reason:
            raise CleanupError(
                "stack-undeletable",
                f"stack {stack.name}",
                f"cannot be deleted ({reason})",
                fix="mend what the reason names, and run `cohost cleanup` again",
            ) from error
        raise CleanupError(
            "stack-protected",
            f"stack {stack.name}",
            "is protected against termination, so nothing of it was removed",
            allowed="a stack without that",
            fix="run `aws cloudformation update-termination-protection --no-enable-termination-protection "
            f"--stack-name {stack.name}`",
        ) from error


def _make_deletable(session: boto3.Session, resource: StackResource, polling: Polling, *, everything: bool) -> None:
    """Remove the likely cause of a failed deletion: wait for the resource's running operation, or empty a bucket."""
    kind = KINDS.get(resource.type)
    if kind is None or not kind.exists(session, resource.name):
        return
    if resource.type != BUCKET:
        wait_until_steady(session, kind, resource.name, polling)
    elif everything:
        # The project's archives are removed already, so somebody else put the remaining objects there. If S3 refuses to
        # delete an object, the bucket stays too, and the clean-up reports that when it tries to remove the bucket.
        with suppress(ClientError):
            empty_bucket(session, resource.name)
