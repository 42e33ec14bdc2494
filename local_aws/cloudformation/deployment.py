"""Bringing a stack to a target, and taking that back.

Both go resource by resource in the order of the graph, resolve each one's properties anew, and act only where they
differ from what exists. So a custom resource that keeps its physical id leaves its dependants alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_aws.cloudformation.context import Context, DeployedValues
from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.graph import restricted, reverse, run
from local_aws.cloudformation.stack import Obsolete, StackResource
from local_aws.cloudformation.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from local_aws.cloudformation.stack import Journal, Live, Stack, Target
    from local_aws.cloudformation.template import ResourceDefinition

Failures = dict[str, Exception]


class Deployment:
    """One way forward: from what exists to the target."""

    def __init__(self, context: Context, stack: Stack, target: Target, journal: Journal) -> None:
        self._context = context
        self._stack = stack
        self._target = target
        self._worker = Worker(context, stack, journal, target.tags)
        self.imports: set[str] = set()
        self._resolver = context.resolver(stack, target, DeployedValues(stack), imports=self.imports)

    def run(self) -> Failures:
        """Create and update in order; the first failure stops what has not begun and cancels long waits."""
        graph = self._context.graph(self._stack, self._target)
        return run(graph, self._apply, on_failure=self._stack.cancelled.set)

    def _apply(self, logical_id: str) -> None:
        definition = self._target.template.resources[logical_id]
        resource = self._stack.resources.get(logical_id)
        try:
            properties = self._resolver.resolve(dict(definition.properties))
        except Exception as error:
            _refuse(self._stack, definition, resource, error)
            raise
        if resource is not None and resource.live is not None and resource.status == "CREATE_FAILED":
            # An earlier try without rollback left half a resource.
            self._worker.delete(Obsolete(definition=resource.definition, live=resource.live), policy="Delete")
            resource.live = None
        if resource is None or resource.live is None:
            self._worker.create(definition, properties)
        elif needs_replacement(self._context, definition, resource.live, properties):
            self._worker.replace(definition, properties)
        elif resource.status == "UPDATE_FAILED" or self._differs(definition, resource.live, properties):
            self._worker.update(definition, properties)
        else:
            resource.definition = definition

    def _differs(self, definition: ResourceDefinition, live: Live, properties: Mapping[str, Any]) -> bool:
        tagged = "Tags" in self._context.registry.get(definition.type).known
        return properties != live.properties or (tagged and live.tags != self._target.tags)


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


def needs_replacement(
    context: Context, definition: ResourceDefinition, live: Live, properties: Mapping[str, Any]
) -> bool:
    """Whether getting from `live` to `properties` takes a new physical resource."""
    if definition.type != live.type:
        return True
    resource_type = context.registry.get(definition.type)
    changed = {key for key in {*properties, *live.properties} if properties.get(key) != live.properties.get(key)}
    return any(resource_type.requires_replacement(key) for key in changed)


def clean_up_after_success(context: Context, stack: Stack, target: Target, journal: Journal) -> Failures:
    """Remove what the new template lacks and what was replaced, in the reverse of the old template's order."""
    active = set(context.active(stack, target))
    doomed = [(one, _replace_policy(one)) for one in journal.obsolete]
    for logical_id, resource in list(stack.resources.items()):
        if logical_id in active:
            continue
        if resource.live is None:
            del stack.resources[logical_id]
        else:
            obsolete = Obsolete(definition=resource.definition, live=resource.live)
            doomed.append((obsolete, _deletion_policy(obsolete)))
    worker = Worker(context, stack, journal, target.tags)
    failures = delete_in_order(context, stack, worker, doomed, journal.previous or target)
    for logical_id in set(stack.resources) - active:
        del stack.resources[logical_id]
    return failures


def delete_all(context: Context, stack: Stack, journal: Journal, *, retain: set[str]) -> Failures:
    """Remove every resource of a stack, in reverse order; those named in `retain` are left and forgotten."""
    doomed = []
    for logical_id, resource in list(stack.resources.items()):
        if resource.live is None:
            del stack.resources[logical_id]
            continue
        obsolete = Obsolete(definition=resource.definition, live=resource.live)
        doomed.append((obsolete, "Retain" if logical_id in retain else _deletion_policy(obsolete)))
    # An operation that ended badly left more behind; what it listed may be current again, or be listed twice.
    known = {_identity(one) for one, _ in doomed}
    for obsolete in [*journal.discarded, *journal.obsolete]:
        if _identity(obsolete) not in known:
            known.add(_identity(obsolete))
            doomed.append((obsolete, _replace_policy(obsolete)))
    tags = stack.target.tags if stack.target is not None else {}
    worker = Worker(context, stack, journal, tags)
    return delete_in_order(context, stack, worker, doomed, stack.target, ended=stack.ended)


def delete_in_order(
    context: Context,
    stack: Stack,
    worker: Worker,
    doomed: list[tuple[Obsolete, str]],
    order: Target | None,
    *,
    ended: dict[str, StackResource] | None = None,
) -> Failures:
    """Remove physical resources so that what depends on another goes first; records of the stack go to `ended`."""
    by_id: dict[str, list[tuple[Obsolete, str]]] = {}
    for obsolete, policy in doomed:
        by_id.setdefault(obsolete.definition.logical_id, []).append((obsolete, policy))
    graph = {} if order is None else reverse(context.graph(stack, order))

    def remove(logical_id: str) -> None:
        for obsolete, policy in by_id[logical_id]:
            worker.delete(obsolete, policy=policy)
            resource = stack.resources.get(logical_id)
            if resource is not None and resource.physical_id == obsolete.live.physical_id:
                del stack.resources[logical_id]
                if ended is not None:
                    ended[logical_id] = resource

    return run(restricted(graph, by_id), remove)


def _identity(obsolete: Obsolete) -> tuple[str, str]:
    return obsolete.definition.logical_id, obsolete.live.physical_id


def _replace_policy(obsolete: Obsolete) -> str:
    return "Delete" if obsolete.definition.update_replace_policy == "Delete" else "Retain"


def _deletion_policy(obsolete: Obsolete) -> str:
    return "Delete" if obsolete.definition.deletion_policy == "Delete" else "Retain"


def _refuse(stack: Stack, definition: ResourceDefinition, resource: StackResource | None, error: Exception) -> None:
    """Write the failure of a resource whose properties cannot be resolved into the history."""
    verb = "CREATE" if resource is None or resource.live is None else "UPDATE"
    record = resource or StackResource(definition=definition, status="")
    if resource is None:
        stack.resources[definition.logical_id] = record
    stack.set_resource_status(record, f"{verb}_FAILED", str(error))
    raise ResourceFailure(str(error)) from error
