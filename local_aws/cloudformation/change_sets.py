"""Change sets: the changes that an update of a stack would make, computed before the update runs.

As in AWS, a value that is known only after the deploy is listed as a possible change (`Evaluation: Dynamic`). A value
that cannot change is not listed: for example, an update in place leaves a resource's ARN as it was.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from local_aws.cloudformation.context import missing_attribute
from local_aws.cloudformation.templates.intrinsics import UNKNOWN, Reference, as_text, references

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from local_aws.cloudformation.context import Context
    from local_aws.cloudformation.resources.base import ResourceType
    from local_aws.cloudformation.state import Live, Stack, Target
    from local_aws.cloudformation.templates.template import ResourceDefinition


MISSING: Final = object()
Difference = tuple[str, Any, Any]


class PlannedValues:
    """The `Ref` and `Fn::GetAtt` values of resources after the deploy, or `UNKNOWN` for values not yet known."""

    def __init__(self, context: Context, stack: Stack) -> None:
        self._context = context
        self._stack = stack
        # The planned change by logical id: "new", "may replace" or "in place". A resource not in here does not change.
        self.fates: dict[str, str] = {}

    def ref(self, logical_id: str) -> str:
        """Return the physical id of a resource, or `UNKNOWN` if the resource is new or may be replaced."""
        live = self._live(logical_id)
        return UNKNOWN if live is None or self.fates.get(logical_id) == "may replace" else live.physical_id

    def attribute(self, logical_id: str, name: str) -> Any:  # an attribute has any type
        """Return an attribute of a resource, or `UNKNOWN` if the deploy may change the attribute."""
        live = self._live(logical_id)
        if live is None or not self.is_certain(Reference(logical_id, name)):
            return UNKNOWN
        if name not in live.attributes:
            raise missing_attribute(live.type, logical_id, name)
        return live.attributes[name]

    def is_certain(self, reference: Reference) -> bool:
        """Return True if it is certain that the deploy does not change the value of a reference."""
        fate = self.fates.get(reference.target)
        if fate == "in place" and reference.attribute:
            live = self._live(reference.target)
            return live is not None and not self._context.resource_types.get(live.type).may_change(reference.attribute)
        return fate in {None, "in place"}

    def _live(self, logical_id: str) -> Live | None:
        resource = self._stack.resources.get(logical_id)
        return None if resource is None else resource.live


def plan(context: Context, stack: Stack, target: Target) -> list[dict[str, Any]]:
    """Return the `Changes` of a change set in the order of the deploy; removed resources come last."""
    values = PlannedValues(context, stack)
    resolver = context.resolver(stack, target, values)
    changes = []
    graph = context.graph(stack, target)
    for logical_id in _in_order(graph):
        definition = target.template.resources[logical_id]
        change = _plan_resource(
            context, stack, target, values, definition, resolver.resolve(dict(definition.properties))
        )
        if change is not None:
            changes.append({"Type": "Resource", "ResourceChange": change})
    for logical_id, resource in stack.resources.items():
        if logical_id not in graph and resource.live is not None:
            policy = "Delete" if resource.definition.deletion_policy == "Delete" else "Retain"
            change = _head("Remove", resource.definition, resource.live) | {"PolicyAction": policy}
            changes.append(
                {"Type": "Resource", "ResourceChange": change | _contexts(resource.definition, resource.live)}
            )
    return changes


def _in_order(graph: Mapping[str, set[str]]) -> Iterator[str]:
    import graphlib

    yield from graphlib.TopologicalSorter(graph).static_order()


def _plan_resource(
    context: Context,
    stack: Stack,
    target: Target,
    values: PlannedValues,
    definition: ResourceDefinition,
    properties: Mapping[str, Any],
) -> dict[str, Any] | None:
    resource = stack.resources.get(definition.logical_id)
    if resource is None or resource.live is None:
        values.fates[definition.logical_id] = "new"
        after = {"AfterContext": _context_text(definition, properties)}
        return _head("Add", definition, None) | {"Scope": [], "Details": []} | after
    live, resource_type = resource.live, context.resource_types.get(definition.type)
    details = [
        detail
        for path, before, after in differences(live.properties, properties, "/Properties")
        for detail in _details(stack, target, values, definition, resource_type, path, before, after)
    ]
    details += _attribute_details(resource.definition, definition)
    if resource_type.schema.taggable and live.tags != target.tags:
        details.append(_detail("Tags", None, "Static", "DirectModification", "Never"))
    # A resource that failed to update without a rollback differs from `live`; the next deploy sets it right.
    failed = resource.status == "UPDATE_FAILED"
    if not details and not failed:
        return None
    replacement = _replacement(details)
    values.fates[definition.logical_id] = "in place" if replacement == "False" else "may replace"
    change = _head("Modify", definition, live) | {
        "Replacement": replacement,
        "Scope": sorted({detail["Target"]["Attribute"] for detail in details}),
        "Details": details,
    }
    if replacement != "False":
        change["PolicyAction"] = f"ReplaceAnd{_policy(definition.update_replace_policy)}"
    return change | _contexts(resource.definition, live, definition, properties)


def differences(before: Any, after: Any, path: str) -> Iterator[Difference]:
    """Yield the paths at which two values differ, with both values; lists of equal length are compared item by item."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from differences(before.get(key, MISSING), after.get(key, MISSING), f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}/{index}")
    elif before != after:
        yield path, before, after


def _details(
    stack: Stack,
    target: Target,
    values: PlannedValues,
    definition: ResourceDefinition,
    resource_type: ResourceType,
    path: str,
    before: Any,
    after: Any,
) -> Iterator[dict[str, Any]]:
    """Yield the `Details` entries for one changed path of a resource's properties: one entry for each cause."""
    name = path.split("/")[2]
    replaces = resource_type.schema.replaces(tuple(path.split("/")[2:]), before, after)
    recreation = "Always" if replaces else "Never"
    old_definition = stack.resources[definition.logical_id].definition
    causes = 0
    for reference in sorted(references(definition.properties.get(name))):
        cause = _cause(stack, target, values, reference)
        if cause is not None and (cause[1] != "Dynamic" or UNKNOWN in _value_text(after)):
            causes += 1
            source, evaluation = cause
            yield _detail("Properties", name, evaluation, source, recreation, str(reference)) | {
                "_values": (path, before, after)
            }
    if causes == 0 or definition.properties.get(name) != old_definition.properties.get(name):
        evaluation = "Dynamic" if UNKNOWN in _value_text(after) else "Static"
        yield _detail("Properties", name, evaluation, "DirectModification", recreation) | {
            "_values": (path, before, after)
        }


def _cause(stack: Stack, target: Target, values: PlannedValues, reference: Reference) -> tuple[str, str] | None:
    """Return the ChangeSource and Evaluation of a reference whose value changes; None if its value does not change."""
    if reference.target in target.parameters:
        previous = stack.target.parameters.get(reference.target) if stack.target is not None else None
        changed = previous is None or previous.value != target.parameters[reference.target].value
        return ("ParameterReference", "Static") if changed else None
    if reference.target in target.template.resources and not values.is_certain(reference):
        return ("ResourceAttribute" if reference.attribute else "ResourceReference", "Dynamic")
    return None


def _attribute_details(old: ResourceDefinition, new: ResourceDefinition) -> list[dict[str, Any]]:
    pairs = {
        "Metadata": (old.metadata, new.metadata),
        "DeletionPolicy": (old.deletion_policy, new.deletion_policy),
        "UpdateReplacePolicy": (old.update_replace_policy, new.update_replace_policy),
    }
    return [
        _detail(attribute, None, "Static", "DirectModification", "Never")
        for attribute, (before, after) in pairs.items()
        if before != after
    ]


def _detail(
    attribute: str, name: str | None, evaluation: str, source: str, recreation: str, cause: str | None = None
) -> dict[str, Any]:
    target = {"Attribute": attribute, "RequiresRecreation": recreation}
    if name is not None:
        target["Name"] = name
    detail: dict[str, Any] = {"Target": target, "Evaluation": evaluation, "ChangeSource": source}
    return detail if cause is None else detail | {"CausingEntity": cause}


def _replacement(details: list[dict[str, Any]]) -> str:
    always = [detail for detail in details if detail["Target"]["RequiresRecreation"] == "Always"]
    if any(detail["Evaluation"] == "Static" for detail in always):
        return "True"
    return "Conditional" if always else "False"


def _policy(policy: str) -> str:
    return "Delete" if policy == "Delete" else "Retain"


def _head(action: str, definition: ResourceDefinition, live: Live | None) -> dict[str, Any]:
    head = {"Action": action, "LogicalResourceId": definition.logical_id, "ResourceType": definition.type}
    return head if live is None else head | {"PhysicalResourceId": live.physical_id}


def _contexts(
    old: ResourceDefinition,
    live: Live,
    new: ResourceDefinition | None = None,
    properties: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    contexts = {"BeforeContext": _context_text(old, live.properties)}
    if new is not None:
        contexts["AfterContext"] = _context_text(new, properties or {})
    return contexts


def _context_text(definition: ResourceDefinition, properties: Mapping[str, Any]) -> str:
    context: dict[str, Any] = {"Properties": properties}
    if definition.metadata:
        context["Metadata"] = definition.metadata
    return json.dumps(context)


def _value_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (dict, list)) else as_text(value)


def described(change: Mapping[str, Any], *, include_values: bool) -> dict[str, Any]:
    """Convert a change to DescribeChangeSet's form; leave out values and contexts unless `include_values` is True."""
    resource = dict(change["ResourceChange"])
    if not include_values:
        resource.pop("BeforeContext", None)
        resource.pop("AfterContext", None)
    details = []
    for detail in resource.get("Details", []):
        shown = {key: value for key, value in detail.items() if key != "_values"}
        if include_values and "_values" in detail:
            shown["Target"] = detail["Target"] | _target_values(*detail["_values"])
        if shown not in details:
            details.append(shown)
    return {"Type": "Resource", "ResourceChange": resource | {"Details": details}}


def _target_values(path: str, before: Any, after: Any) -> dict[str, str]:
    change = "Add" if before is MISSING else "Remove" if after is MISSING else "Modify"
    target = {"Path": path, "AttributeChangeType": change}
    if before is not MISSING:
        target["BeforeValue"] = _value_text(before)
    if after is not MISSING:
        target["AfterValue"] = _value_text(after)
    return target
