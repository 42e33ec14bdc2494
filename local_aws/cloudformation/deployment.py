"""Create, update, replace and delete a stack's resources until they match a target; write the stack's events.

A target is a template with parameters and tags. A deployment processes the resources in the order of the dependency
graph. Each resource's properties are resolved anew, and the resource is changed only if they differ from its present
properties. So an update of a custom resource does not change resources that refer to its physical id if that id stays
the same.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from local_aws.cloudformation.context import Context, DeployedValues
from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.graph import restricted, reverse, run
from local_aws.cloudformation.resources.base import Request, failure_text
from local_aws.cloudformation.state import Live, Obsolete, StackResource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.cloudformation.resources.base import Initiated
    from local_aws.cloudformation.state import Journal, Stack, Target
    from local_aws.cloudformation.templates.handlers import Verb
    from local_aws.cloudformation.templates.template import ResourceDefinition


REPLACING = "Requested update requires the creation of a new physical resource; hence creating one."


class ResourceWorker:
    """Creates, updates and deletes the resources of one stack during one operation.

    Args:
        context: the stacks, resource types and clients of the region.
        stack: the stack.
        journal: the record of begun updates and replaced resources, which a rollback uses.
        tags: the stack's tags for this operation.
    """

    def __init__(self, context: Context, stack: Stack, journal: Journal, tags: Mapping[str, str]) -> None:
        self._context = context
        self._stack = stack
        self._journal = journal
        self._tags = tags

    def create(self, definition: ResourceDefinition, properties: dict[str, Any]) -> None:
        """Create a resource that the stack does not have."""
        resource = StackResource(definition=definition, status="CREATE_IN_PROGRESS")
        self._stack.resources[definition.logical_id] = resource
        self._make(resource, properties, verb="CREATE", reason=None)

    def replace(self, definition: ResourceDefinition, properties: dict[str, Any]) -> None:
        """Create a new physical resource in place of the present one, and note the old one for the later clean-up."""
        resource = self._stack.resources[definition.logical_id]
        assert resource.live is not None  # noqa: S101 - only what exists is replaced
        resource_type = self._context.resource_types.get(definition.type)
        name = resource_type.name_property
        if name is not None and name in properties and properties[name] == resource.live.properties.get(name):
            reason = (
                "CloudFormation cannot update a stack when a custom-named resource requires replacing. "
                f"Rename {properties[name]} and update the stack again."
            )
            self._fail(resource, "UPDATE", ResourceFailure(reason))
        self._journal.obsolete.append(Obsolete(definition=resource.definition, live=resource.live))
        resource.definition = definition
        self._make(resource, properties, verb="UPDATE", reason=REPLACING)

    def _make(self, resource: StackResource, properties: dict[str, Any], *, verb: str, reason: str | None) -> None:
        definition = resource.definition
        self._progress(resource, verb, properties, reason)

        def initiated(physical_id: str, **attributes: Any) -> None:  # an attribute has any type
            resource.physical_id = physical_id
            resource.live = self._live(definition, physical_id, properties, attributes)
            self._stack.set_resource_status(resource, f"{verb}_IN_PROGRESS", "Resource creation Initiated")

        request = self._request(definition, properties, initiated=initiated)
        try:
            outcome = self._context.resource_types.get(definition.type).create(request)
            resource.physical_id = outcome.physical_id
            resource.live = self._live(definition, outcome.physical_id, properties, outcome.attributes)
            self._judge("create", resource.live)
        except Exception as error:  # noqa: BLE001 - any fault of a resource is that resource's failure
            self._fail(resource, verb, error)
        self._stack.set_resource_status(resource, f"{verb}_COMPLETE")

    def update(self, definition: ResourceDefinition, properties: dict[str, Any]) -> None:
        """Update a resource in place; if the update returns another physical id, the resource was replaced."""
        resource = self._stack.resources[definition.logical_id]
        old = resource.live
        assert old is not None  # noqa: S101 - only what exists is updated
        resource_type = self._context.resource_types.get(definition.type)
        self._progress(resource, "UPDATE", properties, None)
        try:
            resource_type.check_fixed(old.properties, properties)
        except ResourceFailure as error:
            self._fail(resource, "UPDATE", error)
        self._journal.updated.add(definition.logical_id)
        request = self._request(definition, properties, existing=old)
        if resource.attempted is not None:
            request = replace(request, old_properties=resource.attempted)
        resource.attempted = properties
        try:
            outcome = resource_type.update(request)
            self._judge("update", self._live(definition, outcome.physical_id, properties, outcome.attributes))
        except Exception as error:  # noqa: BLE001 - as in `_make`
            self._fail(resource, "UPDATE", error)
        if outcome.physical_id != old.physical_id:
            self._journal.obsolete.append(Obsolete(definition=resource.definition, live=old))
        resource.definition = definition
        resource.attempted = None
        resource.physical_id = outcome.physical_id
        resource.live = self._live(definition, outcome.physical_id, properties, outcome.attributes)
        self._stack.set_resource_status(resource, "UPDATE_COMPLETE")

    def delete(self, obsolete: Obsolete, *, policy: str) -> None:
        """Delete a physical resource, or retain it according to `policy`.

        Raises:
            ResourceFailure: the resource could not be deleted.
        """
        definition, live = obsolete.definition, obsolete.live
        # A separate record, because the stack's record of this logical id may already belong to the successor.
        record = StackResource(definition=definition, status="", physical_id=live.physical_id, live=live)
        current = self._stack.resources.get(definition.logical_id)
        if current is not None and current.physical_id == live.physical_id:
            record = current
        if policy != "Delete":
            self._stack.set_resource_status(record, "DELETE_SKIPPED")
            return
        self._stack.set_resource_status(record, "DELETE_IN_PROGRESS")
        request = self._request(definition, dict(live.properties), existing=live)
        try:
            self._judge("delete", live)
            self._context.resource_types.get(live.type).delete(request)
        except Exception as error:  # noqa: BLE001 - as in `_make`
            self._fail(record, "DELETE", error)
        self._stack.set_resource_status(record, "DELETE_COMPLETE")

    def _judge(self, verb: Verb, live: Live) -> None:
        if self._context.rights is not None:
            self._context.rights.check(self._stack, verb, live)

    def _progress(self, resource: StackResource, verb: str, properties: dict[str, Any], reason: str | None) -> None:
        text = json.dumps(properties, default=str)
        self._stack.set_resource_status(resource, f"{verb}_IN_PROGRESS", reason, properties=text)

    def _fail(self, resource: StackResource, verb: str, error: Exception) -> None:
        reason = failure_text(error, resource.definition.type)
        self._stack.set_resource_status(resource, f"{verb}_FAILED", reason)
        raise ResourceFailure(reason) from error

    def _live(
        self,
        definition: ResourceDefinition,
        physical_id: str,
        properties: dict[str, Any],
        attributes: Mapping[str, Any],
    ) -> Live:
        return Live(
            type=definition.type,
            physical_id=physical_id,
            properties=properties,
            attributes=attributes,
            tags=self._tags,
        )

    def _request(
        self,
        definition: ResourceDefinition,
        properties: dict[str, Any],
        *,
        existing: Live | None = None,
        initiated: Initiated | None = None,
    ) -> Request:
        stack = self._stack
        # A replaced resource may be of another type than its successor in the template.
        type_name = definition.type if existing is None else existing.type
        system = {
            "aws:cloudformation:stack-name": stack.name,
            "aws:cloudformation:stack-id": stack.arn,
            "aws:cloudformation:logical-id": definition.logical_id,
        }
        schema = self._context.resource_types.get(type_name).schema
        request = Request(
            type=type_name,
            logical_id=definition.logical_id,
            stack_name=stack.name,
            stack_arn=stack.arn,
            region=stack.region,
            properties=properties,
            tags={**(self._tags if schema.taggable else {}), **(system if schema.system_tags else {})},
            clients=self._context.clients,
            signer=None if self._context.rights is None else self._context.rights.signer(stack),
            cancelled=stack.cancelled,
        )
        if initiated is not None:
            request = replace(request, initiated=initiated)
        if existing is None:
            return request
        return replace(
            request,
            physical_id=existing.physical_id,
            attributes=existing.attributes,
            old_properties=existing.properties,
        )


Failures = dict[str, Exception]
"""The exceptions of resources that failed, by logical id."""


class Deployment:
    """Creates, updates and replaces the resources of a stack until they match the target."""

    def __init__(self, context: Context, stack: Stack, target: Target, journal: Journal) -> None:
        self._context = context
        self._stack = stack
        self._target = target
        self._worker = ResourceWorker(context, stack, journal, target.tags)
        self.imports: set[str] = set()
        self._resolver = context.resolver(stack, target, DeployedValues(stack), imports=self.imports)

    def run(self) -> Failures:
        """Create and update the resources in order; after a failure, start no other one and cancel long waits."""
        graph = self._context.graph(self._stack, self._target)
        return run(graph, self._apply, on_failure=self._stack.cancelled.set)

    def _apply(self, logical_id: str) -> None:
        definition = self._target.template.resources[logical_id]
        resource = self._stack.resources.get(logical_id)
        try:
            properties = self._resolver.resolve(dict(definition.properties))
        except Exception as error:
            _record_unresolved(self._stack, definition, resource, error)
            raise
        if resource is not None and resource.live is not None and resource.status == "CREATE_FAILED":
            # An earlier create without rollback left an incomplete resource.
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
        tagged = self._context.resource_types.get(definition.type).schema.taggable
        return properties != live.properties or (tagged and live.tags != self._target.tags)


def needs_replacement(
    context: Context, definition: ResourceDefinition, live: Live, properties: Mapping[str, Any]
) -> bool:
    """Return True if the change of a resource from `live` to `properties` needs a new physical resource."""
    return context.resource_types.get(definition.type).replaces(live.properties, properties)


def clean_up_after_success(context: Context, stack: Stack, target: Target, journal: Journal) -> Failures:
    """Delete replaced resources and resources that the new template lacks, in reverse of the old template's order."""
    active = set(context.active(stack, target))
    removals = [(one, _replace_policy(one)) for one in journal.obsolete]
    for logical_id, resource in list(stack.resources.items()):
        if logical_id in active:
            continue
        if resource.live is None:
            del stack.resources[logical_id]
        else:
            obsolete = Obsolete(definition=resource.definition, live=resource.live)
            removals.append((obsolete, _deletion_policy(obsolete)))
    worker = ResourceWorker(context, stack, journal, target.tags)
    failures = delete_in_order(context, stack, worker, removals, journal.previous or target)
    for logical_id in set(stack.resources) - active:
        del stack.resources[logical_id]
    return failures


def delete_all(context: Context, stack: Stack, journal: Journal, *, retain: set[str]) -> Failures:
    """Delete every resource of a stack, dependants first; keep resources whose logical id is in `retain`."""
    removals = []
    for logical_id, resource in list(stack.resources.items()):
        if resource.live is None:
            del stack.resources[logical_id]
            continue
        obsolete = Obsolete(definition=resource.definition, live=resource.live)
        removals.append((obsolete, "Retain" if logical_id in retain else _deletion_policy(obsolete)))
    # A failed operation may have left replaced resources; one of them may be current again, or be listed twice.
    known = {_identity(one) for one, _ in removals}
    for obsolete in [*journal.discarded, *journal.obsolete]:
        if _identity(obsolete) not in known:
            known.add(_identity(obsolete))
            removals.append((obsolete, _replace_policy(obsolete)))
    tags = stack.target.tags if stack.target is not None else {}
    worker = ResourceWorker(context, stack, journal, tags)
    return delete_in_order(context, stack, worker, removals, stack.target, ended=stack.ended)


def delete_in_order(
    context: Context,
    stack: Stack,
    worker: ResourceWorker,
    removals: list[tuple[Obsolete, str]],
    order: Target | None,
    *,
    ended: dict[str, StackResource] | None = None,
) -> Failures:
    """Delete physical resources, dependants first, and move their records from the stack to `ended` if given."""
    by_id: dict[str, list[tuple[Obsolete, str]]] = {}
    for obsolete, policy in removals:
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


def failure_reason(stack: Stack, failures: Failures) -> str:
    """Return a failed stack's reason in CloudFormation's words: which resources failed to create, update or delete."""
    by_verb: dict[str, list[str]] = {}
    for name in failures:
        resource = stack.resources.get(name)
        verb = "update" if resource is None else resource.status.split("_", 1)[0].lower()
        by_verb.setdefault(verb, []).append(name)
    return "".join(
        f"The following resource(s) failed to {verb}: [{', '.join(names)}]. " for verb, names in by_verb.items()
    )


def _identity(obsolete: Obsolete) -> tuple[str, str]:
    return obsolete.definition.logical_id, obsolete.live.physical_id


def _replace_policy(obsolete: Obsolete) -> str:
    return "Delete" if obsolete.definition.update_replace_policy == "Delete" else "Retain"


def _deletion_policy(obsolete: Obsolete) -> str:
    return "Delete" if obsolete.definition.deletion_policy == "Delete" else "Retain"


def _record_unresolved(
    stack: Stack, definition: ResourceDefinition, resource: StackResource | None, error: Exception
) -> None:
    """Record the failure of a resource whose properties cannot be resolved, and raise ResourceFailure."""
    verb = "CREATE" if resource is None or resource.live is None else "UPDATE"
    record = resource or StackResource(definition=definition, status="")
    if resource is None:
        stack.resources[definition.logical_id] = record
    stack.set_resource_status(record, f"{verb}_FAILED", str(error))
    raise ResourceFailure(str(error)) from error
