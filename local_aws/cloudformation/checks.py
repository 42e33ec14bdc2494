"""Check templates before anything is created: types, properties, references, rules and capabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from local_aws.cloudformation.errors import CloudFormationError, ValidationError
from local_aws.cloudformation.intrinsics import references

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from local_aws.cloudformation.intrinsics import Resolver
    from local_aws.cloudformation.resources import ResourceTypes
    from local_aws.cloudformation.template import Template


IAM_TYPES: Final = ("AWS::IAM::Role", "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
NAMED_BY: Final = {"AWS::IAM::Role": "RoleName", "AWS::IAM::ManagedPolicy": "ManagedPolicyName"}
PSEUDO_PARAMETERS: Final = frozenset(
    f"AWS::{name}"
    for name in ("AccountId", "NoValue", "NotificationARNs", "Partition", "Region", "StackId", "StackName", "URLSuffix")
)


def check_template(template: Template, resource_types: ResourceTypes) -> None:
    """Reject a template that the emulation cannot deploy, before any resource is created.

    Raises:
        ValidationError: a resource type or a property is not known, a required property is missing, or a reference
            names nothing in the template.
    """
    types = {definition.type for definition in template.resources.values()}
    unknown = sorted(name for name in types if resource_types.find(name) is None)
    if unknown:
        raise ValidationError(
            f"Template format error: Unrecognized resource types: [{', '.join(unknown)}]. "
            f"The local AWS knows {', '.join(resource_types.names)}."
        )
    for definition in template.resources.values():
        _check_properties(definition.logical_id, definition.type, definition.properties, resource_types)
    _check_references(template)


def _check_properties(
    logical_id: str, type_name: str, properties: Mapping[str, Any], resource_types: ResourceTypes
) -> None:
    resource_type = resource_types.get(type_name)
    unknown = resource_type.unknown_properties(properties)
    if unknown:
        raise ValidationError(
            f"Properties validation failed for resource {logical_id} of type {type_name}: the local AWS does not "
            f"support [{', '.join(unknown)}]; it takes {', '.join(sorted(resource_type.known))}."
        )
    for place, name in resource_type.extraneous(properties):
        raise ValidationError(
            f"Properties validation failed for resource {logical_id} with message: {place}: extraneous key [{name}] is "
            "not permitted"
        )
    missing = sorted(resource_type.required - set(properties))
    if missing:
        raise ValidationError(
            f"Properties validation failed for resource {logical_id} of type {type_name}: "
            f"required key [{', '.join(missing)}] not found"
        )


def _check_references(template: Template) -> None:
    names = {*template.resources, *template.section("Parameters"), *PSEUDO_PARAMETERS}
    blocks: dict[str, Any] = {
        "Resources": [dict(definition.properties) for definition in template.resources.values()],
        "Outputs": dict(template.section("Outputs")),
    }
    for block, content in blocks.items():
        missing = sorted({reference.target for reference in references(content)} - names)
        if missing:
            raise ValidationError(
                f"Template format error: Unresolved resource dependencies [{', '.join(missing)}] in the {block} block "
                "of the template"
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
    """Return the capabilities that a caller must acknowledge for this template."""
    iam = [definition for definition in template.resources.values() if definition.type in IAM_TYPES]
    if any(NAMED_BY.get(definition.type) in definition.properties for definition in iam):
        return ["CAPABILITY_NAMED_IAM"]
    return ["CAPABILITY_IAM"] if iam else []


def check_capabilities(template: Template, acknowledged: Iterable[str]) -> None:
    """Reject IAM resources that the caller did not acknowledge.

    Raises:
        CloudFormationError: a needed capability is missing (code `InsufficientCapabilitiesException`).
    """
    given = set(acknowledged)
    # CAPABILITY_NAMED_IAM includes CAPABILITY_IAM.
    needed = [one for one in needed_capabilities(template) if not given & {one, "CAPABILITY_NAMED_IAM"}]
    if needed:
        raise CloudFormationError("InsufficientCapabilitiesException", f"Requires capabilities : {needed}")
