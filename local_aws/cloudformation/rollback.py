"""Roll a stack back: restore what was there before an operation and remove what the operation made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_aws.cloudformation.context import Context, DeployedValues
from local_aws.cloudformation.deployment import Failures, Worker, delete_in_order
from local_aws.cloudformation.graph import restricted, run
from local_aws.cloudformation.state import Obsolete

if TYPE_CHECKING:
    from local_aws.cloudformation.state import Journal, Stack, Target


class Rollback:
    """One way back: to what the journal says was there before."""

    def __init__(self, context: Context, stack: Stack, journal: Journal) -> None:
        self._context = context
        self._stack = stack
        self._journal = journal
        self._tags = journal.previous.tags if journal.previous is not None else {}

    def restore(self) -> Failures:
        """Bring every resource that was there before back to its properties of then."""
        previous = self._journal.previous
        if previous is None:
            return {}
        self._worker = Worker(self._context, self._stack, self._journal, previous.tags)
        self._resolver = self._context.resolver(self._stack, previous, DeployedValues(self._stack))
        graph = restricted(self._context.graph(self._stack, previous), self._journal.before)
        return run(graph, self._restore)

    def _restore(self, logical_id: str) -> None:
        old, definition = self._journal.before[logical_id], self._journal.definitions[logical_id]
        resource = self._stack.resources[logical_id]
        by_update = self._context.registry.get(old.type).rolls_back_by_update
        if resource.live is not None and resource.live.physical_id != old.physical_id and not by_update:
            self._journal.discarded.append(Obsolete(definition=resource.definition, live=resource.live))
            resource.live, resource.physical_id = old, old.physical_id
            self._stack.set_resource_status(resource, "UPDATE_COMPLETE")
        resource.definition = definition
        properties = self._resolver.resolve(dict(definition.properties))
        assert resource.live is not None  # noqa: S101 - what was there before is never removed on the way forward
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
        """Remove what the failed operation made, in the reverse of its own order.

        Args:
            target: what the failed operation was to reach.
        """
        doomed = [(one, "Delete") for one in self._journal.discarded]
        for logical_id, resource in list(self._stack.resources.items()):
            if logical_id in self._journal.before:
                continue
            if resource.live is None:
                del self._stack.resources[logical_id]
            else:
                policy = "Retain" if resource.definition.deletion_policy == "Retain" else "Delete"
                doomed.append((Obsolete(definition=resource.definition, live=resource.live), policy))
        worker = Worker(self._context, self._stack, self._journal, target.tags)
        # After a failed create the stack itself is at its end.
        ended = self._stack.ended if self._journal.previous is None else None
        return delete_in_order(self._context, self._stack, worker, doomed, target, ended=ended)
