"""The whole clean-up: delete the stacks, then the resources that they left, then list what still exists as proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cohost.deploy.cleanup.leftovers import Leftover, find_leftovers
from cohost.deploy.cleanup.resource_types import BUCKET, COMPONENT, ENDPOINT, KINDS, is_missing, wait_until_steady
from cohost.deploy.cleanup.stacks import delete_stack, find_stacks
from cohost.errors import CleanupError

if TYPE_CHECKING:
    import boto3

    from cohost.deploy.cleanup.resource_types import Polling
    from cohost.deploy.cleanup.stacks import OurStack


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Everything of this project that exists: stacks that are not deleted, and resources."""

    stacks: tuple[OurStack, ...]
    resources: tuple[Leftover, ...]

    def left(self, *, everything: bool) -> list[Leftover]:
        """Return the resources that a clean-up removes; with `everything`, also the buckets that stacks retain."""
        return [one for one in self.resources if everything or not one.kept]

    def kept(self) -> list[Leftover]:
        """Return the resources that remain on purpose after the deletion of their stack."""
        return [one for one in self.resources if one.kept]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a clean-up.

    `removed` names the stacks and resources that were removed, `faults` has an error text per one that could not be
    removed, and `after` is the inventory after the clean-up.
    """

    removed: tuple[str, ...]
    faults: tuple[str, ...]
    after: Inventory


def take_inventory(session: boto3.Session, stack: str | None) -> Inventory:
    """List the existing resources of one stack, or of all stacks of this project if the stack's name is None."""
    stacks = find_stacks(session, stack)
    return Inventory(
        stacks=tuple(one for one in stacks if not one.gone), resources=tuple(find_leftovers(session, stacks))
    )


def clean_up(session: boto3.Session, stack: str | None, polling: Polling, *, everything: bool) -> Outcome:
    """Remove one stack (or all of this project, if the name is None), and the resources that its deletion leaves.

    If one stack or resource cannot be removed, the others are still removed. With `everything`, the buckets that a
    stack retains on deletion are removed too, with the objects that others put into them. A second clean-up of the same
    stacks finds nothing to remove.
    """
    removed: list[str] = []
    faults: list[str] = []
    # The newest stack is deleted first, because a later stack may use exports of an earlier one.
    for one in find_stacks(session, stack):
        if one.gone:
            continue
        polling.tell(f"deleting stack {one.name}")
        try:
            left = delete_stack(session, one, polling, everything=everything)
            removed.append(f"stack {one.name}")
            faults += [str(_foreign(resource.name)) for resource in left if resource.type == BUCKET]
        except CleanupError as fault:
            faults.append(str(fault))
    inventory = take_inventory(session, stack)
    still_there = {one.name for one in inventory.stacks}
    for leftover in inventory.left(everything=everything):
        if leftover.stack in still_there:
            # A stack that could not be deleted keeps its resources, also those that a deleted stack of the same name
            # lists.
            continue
        polling.tell(f"deleting {leftover.type} {leftover.name}")
        try:
            _remove(session, leftover, polling)
            removed.append(f"{leftover.type} {leftover.name}")
        except (CleanupError, ClientError) as fault:
            faults.append(f"{leftover.type} {leftover.name} is left: {fault}")
    return Outcome(removed=tuple(removed), faults=tuple(faults), after=take_inventory(session, stack))


def _foreign(bucket: str) -> CleanupError:
    return CleanupError(
        "bucket-not-ours",
        f"bucket {bucket}",
        "is left, because it holds objects that lmi-cohost did not write",
        allowed="an empty bucket",
        fix="look at them, and run `cohost cleanup --all`, which deletes them too",
    )


def _remove(session: boto3.Session, leftover: Leftover, polling: Polling) -> None:
    kind = KINDS[leftover.type]
    wait_until_steady(session, kind, leftover.name, polling)
    try:
        kind.remove(session, leftover.name)
    except ClientError as error:
        if not is_missing(error):
            raise
    if leftover.type in {COMPONENT, ENDPOINT}:
        # Components must be deleted before their endpoint, and an endpoint before its configuration.
        polling.until(
            f"{leftover.type} {leftover.name}",
            lambda: "Deleting" if kind.exists(session, leftover.name) else None,
        )
