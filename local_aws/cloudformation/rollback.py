"""Roll a stack back: restore the previous resources, delete the new resources, set the statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from local_aws.cloudformation.context import Context, DeployedValues
from local_aws.cloudformation.deployment import Failures, ResourceWorker, delete_in_order, failure_reason
from local_aws.cloudformation.graph import restricted, run
from local_aws.cloudformation.state import Obsolete

if TYPE_CHECKING:
    from local_aws.cloudformation.state import Journal, Stack, Target


ROLLBACK_PREFIXES: Final = {
    "CREATE_FAILED": "ROLLBACK",
    "UPDATE_FAILED": "UPDATE_ROLLBACK",
    "UPDATE_ROLLBACK_FAILED": "UPDATE_ROLLBACK",
}
"""The statuses from which a stack can be rolled back, each with the prefix of the statuses of that rollback."""


def roll_back(context: Context, stack: Stack, prefix: str, *, reason: str) -> None:
    """Roll back an operation that has just failed.

    Args:
        context: the stacks, resource types and clients of the region.
        stack: the stack.
        prefix: the prefix of the statuses: `ROLLBACK` after a create, `UPDATE_ROLLBACK` after an update.
        reason: the reason of the failure.
    """
    stack.cancelled.clear()
    stack.set_status(f"{prefix}_IN_PROGRESS", f"{reason}Rollback requested by user.")
    run_rollback(context, stack, prefix, reason=reason)


def run_rollback(context: Context, stack: Stack, prefix: str, *, reason: str | None) -> None:
    """Restore a stack's resources, and set the rollback's statuses, which all begin with `prefix`."""
    journal, failed_target = stack.open_journal, stack.target
    assert failed_target is not None  # noqa: S101 - a stack that is rolled back had a target
    rollback = Rollback(context, stack, journal)
    failures = rollback.restore()
    if not failures and journal.previous is not None:
        stack.set_status(f"{prefix}_COMPLETE_CLEANUP_IN_PROGRESS")
    if not failures:
        failures = rollback.clean_up(failed_target)
        # After an update CloudFormation leaves resources that it cannot delete; after a create the stack must be empty.
        failures = failures if journal.previous is None else {}
    if failures:
        stack.set_status(f"{prefix}_FAILED", failure_reason(stack, failures))
        return
    stack.target = journal.previous or failed_target
    stack.journal = None
    stack.set_status(f"{prefix}_COMPLETE", reason and reason.strip())


class Rollback:
    """Restores the resources that a stack had before the failed operation, as its journal recorded them."""

    def __init__(self, context: Context, stack: Stack, journal: Journal) -> None:
        self._context = context
        self._stack = stack
        self._journal = journal

    def restore(self) -> Failures:
        """Give every resource that existed before the failed operation its former properties again."""
        previous = self._journal.previous
        if previous is None:
            return {}
        self._worker = ResourceWorker(self._context, self._stack, self._journal, previous.tags)
        self._resolver = self._context.resolver(self._stack, previous, DeployedValues(self._stack))
        graph = restricted(self._context.graph(self._stack, previous), self._journal.before)
        return run(graph, self._restore)

    def _restore(self, logical_id: str) -> None:
        old, definition = self._journal.before[logical_id], self._journal.definitions[logical_id]
        resource = self._stack.resources[logical_id]
        by_update = self._context.resource_types.get(old.type).rolls_back_by_update
        if resource.live is not None and resource.live.physical_id != old.physical_id and not by_update:
            self._journal.discarded.append(Obsolete(definition=resource.definition, live=resource.live))
            resource.live, resource.physical_id = old, old.physical_id
            self._stack.set_resource_status(resource, "UPDATE_COMPLETE")
        resource.definition = definition
        properties = self._resolver.resolve(dict(definition.properties))
        assert resource.live is not None  # noqa: S101 - a deployment removes nothing of before
        begun = logical_id in self._journal.updated
        touched = begun and (resource.live is not old or resource.status.endswith("_FAILED"))
        if touched or properties != resource.live.properties:
            before_update = resource.live
            self._worker.update(definition, properties)
            if resource.live.physical_id != before_update.physical_id:
                self._journal.discarded.append(Obsolete(definition=definition, live=before_update))
        elif resource.status.endswith("_FAILED"):
            self._stack.set_resource_status(resource, "UPDATE_COMPLETE")

    def clean_up(self, target: Target) -> Failures:
        """Delete the resources that the failed operation created, in reverse order.

        Args:
            target: the target of the failed operation.
        """
        removals = [(one, "Delete") for one in self._journal.discarded]
        for logical_id, resource in list(self._stack.resources.items()):
            if logical_id in self._journal.before:
                continue
            if resource.live is None:
                del self._stack.resources[logical_id]
            else:
                policy = "Retain" if resource.definition.deletion_policy == "Retain" else "Delete"
                removals.append((Obsolete(definition=resource.definition, live=resource.live), policy))
        worker = ResourceWorker(self._context, self._stack, self._journal, target.tags)
        # After a failed create the stack is not used again, so its deleted resources are listed as ended.
        ended = self._stack.ended if self._journal.previous is None else None
        return delete_in_order(self._context, self._stack, worker, removals, target, ended=ended)
