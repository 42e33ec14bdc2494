"""Check templates before anything is created: sections, types, properties, references, rules and capabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from local_aws.cloudformation.context import missing_attribute
from local_aws.cloudformation.errors import CloudFormationError, ValidationError
from local_aws.cloudformation.templates.forms import check_functions
from local_aws.cloudformation.templates.intrinsics import imported_names, references, used_conditions
from local_aws.cloudformation.templates.schemas import value_at
from local_aws.cloudformation.templates.sections import check_sections

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from local_aws.cloudformation.resources import ResourceTypes
    from local_aws.cloudformation.templates.intrinsics import Resolver
    from local_aws.cloudformation.templates.template import Template


IAM_TYPES: Final = ("AWS::IAM::Role", "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
NAMED_BY: Final = {"AWS::IAM::Role": "RoleName", "AWS::IAM::ManagedPolicy": "ManagedPolicyName"}
PSEUDO_PARAMETERS: Final = frozenset(
    f"AWS::{name}"
    for name in ("AccountId", "NoValue", "NotificationARNs", "Partition", "Region", "StackId", "StackName", "URLSuffix")
)


def check_template(template: Template, resource_types: ResourceTypes) -> None:
    """Reject a template that AWS or the emulation cannot deploy, before any resource is created.

    Raises:
        ValidationError: a section is malformed, a resource type or a property is not known, a required property is
            missing or a read-only one is set, a function is malformed, or a reference names nothing in the template.
    """
    check_sections(template)
    types = {definition.type for definition in template.resources.values()}
    unknown = sorted(name for name in types if resource_types.find(name) is None)
    if unknown:
        raise ValidationError(
            f"Template format error: Unrecognized resource types: [{', '.join(unknown)}]. "
            f"The local AWS knows {', '.join(resource_types.names)}."
        )
    for definition in template.resources.values():
        _check_properties(definition.logical_id, definition.type, definition.properties, resource_types)
        check_functions(dict(definition.properties), "Resources")
    for output in template.section("Outputs").values():
        check_functions(output, "Outputs")
    _check_references(template)
    _check_attributes(template, resource_types)
    _check_imports(template)


def _check_properties(
    logical_id: str, type_name: str, properties: Mapping[str, Any], resource_types: ResourceTypes
) -> None:
    resource_type = resource_types.get(type_name)
    schema = resource_type.schema
    prefix = f"Properties validation failed for resource {logical_id} of type {type_name}"
    unknown = resource_type.unknown_properties(properties)
    if foreign := [name for name in unknown if schema.properties and name not in schema.properties]:
        raise ValidationError(f"{prefix}: extraneous key [{', '.join(foreign)}] is not permitted")
    if fixed := sorted(".".join(path) for path in schema.read_only if value_at(properties, path) not in (None, [])):
        raise ValidationError(f"{prefix}: [{', '.join(fixed)}] is read-only and cannot be set")
    if unknown:
        raise ValidationError(
            f"{prefix}: the local AWS does not support [{', '.join(unknown)}]; it takes "
            f"{', '.join(sorted(resource_type.known))}."
        )
    for place, name in resource_type.extraneous(properties):
        raise ValidationError(
            f"Properties validation failed for resource {logical_id} with message: {place}: extraneous key [{name}] is "
            "not permitted"
        )
    missing = sorted((schema.required | resource_type.required) - set(properties))
    if missing:
        raise ValidationError(f"{prefix}: required key [{', '.join(missing)}] not found")


def _check_references(template: Template) -> None:
    names = {*template.resources, *template.section("Parameters"), *PSEUDO_PARAMETERS}
    blocks: dict[str, Any] = {
        "Resources": [dict(definition.properties) for definition in template.resources.values()],
        "Outputs": dict(template.section("Outputs")),
    }
    for block, content in blocks.items():
        _reject_unresolved({reference.target for reference in references(content)} - names, block)
    missing = sorted({*used_conditions(blocks), *_stated_conditions(template)} - set(template.section("Conditions")))
    if missing:
        raise ValidationError(f"Template error: unresolved condition dependency {missing[0]} in Fn::If")


def check_active_references(template: Template, active: Iterable[str], conditions: Mapping[str, bool]) -> None:
    """Reject a reference from a deployed resource or output to a resource that a false condition leaves out.

    Args:
        template: the template.
        active: the logical ids of the resources whose condition holds.
        conditions: the values of all conditions, by which branches of `Fn::If` are left out.

    Raises:
        ValidationError: a resource or an output refers to a resource that is left out; DependsOn may.
    """
    present = set(active)
    left_out = set(template.resources) - present
    outputs = [one for one in template.section("Outputs").values() if conditions.get(one.get("Condition"), True)]
    for block, parts in {
        "Resources": [dict(template.resources[name].properties) for name in present],
        "Outputs": outputs,
    }.items():
        _reject_unresolved({one.target for one in references(parts, conditions)} & left_out, block)


def _reject_unresolved(names: set[str], block: str) -> None:
    if names:
        raise ValidationError(
            f"Template format error: Unresolved resource dependencies [{', '.join(sorted(names))}] in the {block} "
            "block of the template"
        )


def _stated_conditions(template: Template) -> list[str]:
    outputs = template.section("Outputs").values()
    return [str(one["Condition"]) for one in outputs if "Condition" in one]


def _check_attributes(template: Template, resource_types: ResourceTypes) -> None:
    """Reject a `Fn::GetAtt` for an attribute that the resource's type does not have."""
    content = [
        *(dict(definition.properties) for definition in template.resources.values()),
        *template.section("Outputs").values(),
    ]
    for reference in sorted(references(content)):
        definition = template.resources.get(reference.target)
        if definition is None or not reference.attribute:
            continue
        attributes = resource_types.get(definition.type).schema.attributes
        if attributes is not None and reference.attribute not in attributes:
            raise missing_attribute(definition.type, reference.target, reference.attribute)


def _check_imports(template: Template) -> None:
    content = [dict(definition.properties) for definition in template.resources.values()]
    for name in imported_names([*content, *template.section("Outputs").values()]):
        if {one.target for one in references(name)} & set(template.resources):
            raise ValidationError(
                "Template error: the attribute in Fn::ImportValue must not depend on any resources, imported values, "
                "or Fn::GetAZs"
            )


def check_rules(template: Template, resolver: Resolver) -> None:
    """Reject parameters that break a rule of the template.

    Raises:
        ValidationError: an assertion of a rule does not hold; the text contains its AssertDescription.
    """
    for name, rule in template.section("Rules").items():
        condition = rule.get("RuleCondition")
        if condition is not None and not resolver.holds(condition):
            continue
        for assertion in rule.get("Assertions", []):
            if not resolver.holds(assertion["Assert"]):
                reason = assertion.get("AssertDescription", "an assertion does not hold")
                raise ValidationError(f"Template error: Rule {name}: {reason}")


def needed_capabilities(template: Template) -> list[str]:
    """Return the capabilities, such as CAPABILITY_IAM, that a caller must acknowledge for this template."""
    iam = [definition for definition in template.resources.values() if definition.type in IAM_TYPES]
    if any(NAMED_BY.get(definition.type) in definition.properties for definition in iam):
        return ["CAPABILITY_NAMED_IAM"]
    return ["CAPABILITY_IAM"] if iam else []


def check_capabilities(template: Template, acknowledged: Iterable[str]) -> None:
    """Reject a template with IAM resources if the caller did not acknowledge the needed capability.

    Raises:
        CloudFormationError: a needed capability is missing (code `InsufficientCapabilitiesException`).
    """
    given = set(acknowledged)
    # CAPABILITY_NAMED_IAM includes CAPABILITY_IAM.
    needed = [one for one in needed_capabilities(template) if not given & {one, "CAPABILITY_NAMED_IAM"}]
    if needed:
        raise CloudFormationError("InsufficientCapabilitiesException", f"Requires capabilities : {needed}")
