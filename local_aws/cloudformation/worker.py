"""Creating, updating and deleting one resource: the calls, the events and what is remembered of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import Request, failure_text
from local_aws.cloudformation.stack import Live, Obsolete, StackResource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.cloudformation.context import Context
    from local_aws.cloudformation.resources.base import Initiated
    from local_aws.cloudformation.stack import Journal, Stack
    from local_aws.cloudformation.template import ResourceDefinition

REPLACING = "Requested update requires the creation of a new physical resource; hence creating one."


class Worker:
    """Works on the resources of one stack during one operation.

    Args:
        context: the region.
        stack: the stack.
        journal: takes note of what is begun and of what is replaced.
        tags: the stack's tags for this operation.
    """

    def __init__(self, context: Context, stack: Stack, journal: Journal, tags: Mapping[str, str]) -> None:
        self._context = context
        self._stack = stack
        self._journal = journal
        self._tags = tags

    def create(self, definition: ResourceDefinition, properties: dict[str, Any]) -> None:
        """Make a resource that the stack does not have."""
        resource = StackResource(definition=definition, status="CREATE_IN_PROGRESS")
        self._stack.resources[definition.logical_id] = resource
        self._make(resource, properties, verb="CREATE", reason=None)

    def replace(self, definition: ResourceDefinition, properties: dict[str, Any]) -> None:
        """Make a new physical resource first; the old one waits for the clean-up."""
        resource = self._stack.resources[definition.logical_id]
        assert resource.live is not None  # noqa: S101 - only what exists is replaced
        resource_type = self._context.registry.get(definition.type)
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

        def initiated(physical_id: str, **attributes: Any) -> None:  # noqa: ANN401 - attributes are of any type
            resource.physical_id = physical_id
            resource.live = self._live(definition, physical_id, properties, attributes)
            self._stack.set_resource_status(resource, f"{verb}_IN_PROGRESS", "Resource creation Initiated")

        request = self._request(definition, properties, initiated=initiated)
        try:
            outcome = self._context.registry.get(definition.type).create(request)
        except Exception as error:  # noqa: BLE001 - any fault of a resource is that resource's failure
            self._fail(resource, verb, error)
        resource.physical_id = outcome.physical_id
        resource.live = self._live(definition, outcome.physical_id, properties, outcome.attributes)
        self._stack.set_resource_status(resource, f"{verb}_COMPLETE")

    def update(self, definition: ResourceDefinition, properties: dict[str, Any]) -> None:
        """Change a resource in place; its type may answer with another physical id, which is a replacement."""
        resource = self._stack.resources[definition.logical_id]
        old = resource.live
        assert old is not None  # noqa: S101 - only what exists is updated
        self._journal.updated.add(definition.logical_id)
        self._progress(resource, "UPDATE", properties, None)
        request = self._request(definition, properties, existing=old)
        if resource.attempted is not None:
            request = replace(request, old_properties=resource.attempted)
        resource.attempted = properties
        try:
            outcome = self._context.registry.get(definition.type).update(request)
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
        """Remove a physical resource, or leave it where `policy` says so.

        Raises:
            ResourceFailure: it could not be removed.
        """
        definition, live = obsolete.definition, obsolete.live
        # Its own record: the stack's record of this logical id may already be that of a successor.
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
            self._context.registry.get(live.type).delete(request)
        except Exception as error:  # noqa: BLE001 - as in `_make`
            self._fail(record, "DELETE", error)
        self._stack.set_resource_status(record, "DELETE_COMPLETE")

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
        takes_system_tags = self._context.registry.get(type_name).takes_system_tags
        request = Request(
            type=type_name,
            logical_id=definition.logical_id,
            stack_name=stack.name,
            stack_arn=stack.arn,
            region=stack.region,
            properties=properties,
            tags={**self._tags, **(system if takes_system_tags else {})},
            clients=self._context.clients,
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
