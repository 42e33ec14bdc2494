"""Templates: reading JSON and YAML, and the checks that need no parameter and no account.

The YAML short forms (`!Ref`, `!Sub`, `!GetAtt A.B` …) become the long ones, so that the rest knows one spelling
(AWS: CloudFormation user guide, "Intrinsic function reference").
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml

from local_aws.cloudformation.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

SECTIONS: Final = frozenset(
    {
        "AWSTemplateFormatVersion", "Description", "Metadata", "Parameters", "Mappings", "Conditions", "Rules",
        "Transform", "Resources", "Outputs", "Hooks",
    }
)  # fmt: skip
RESOURCE_KEYS: Final = frozenset(
    {
        "Type", "Properties", "DependsOn", "Condition", "Metadata", "DeletionPolicy", "UpdateReplacePolicy",
        "CreationPolicy", "UpdatePolicy",
    }
)  # fmt: skip
POLICIES: Final = ("Delete", "Retain", "RetainExceptOnCreate")


@dataclass(frozen=True, kw_only=True)
class ResourceDefinition:
    """One entry of a template's Resources, with its intrinsics unresolved."""

    logical_id: str
    type: str
    properties: Mapping[str, Any]
    depends_on: tuple[str, ...] = ()
    condition: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    deletion_policy: str = "Delete"
    update_replace_policy: str = "Delete"


@dataclass(frozen=True, kw_only=True)
class Template:
    """A template as it was sent (`body`) and as it was read."""

    body: str
    document: Mapping[str, Any]
    resources: Mapping[str, ResourceDefinition]

    def section(self, name: str) -> Mapping[str, Any]:
        """A section such as `Parameters`; empty when the template has none."""
        section: Mapping[str, Any] = self.document.get(name) or {}
        return section


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's tags. `2012-10-17` stays text: policies' versions are no dates."""


def _short_form(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        assert isinstance(node, yaml.MappingNode)  # noqa: S101 - YAML has three kinds of node
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in {"Ref", "Condition"} else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _short_form)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@functools.lru_cache(maxsize=16)
def parse_template(body: str) -> Template:
    """Read a template and check its form.

    Raises:
        ValidationError: it is neither JSON nor YAML, or a section or a resource is malformed.
    """
    document = _read(body)
    unknown = sorted(set(document) - SECTIONS)
    if unknown:
        raise ValidationError(f"Invalid template property or properties {_names(unknown)}")
    if document.get("Transform"):
        raise ValidationError(f"Transform {document['Transform']} is not supported by the local AWS; expand it first.")
    resources = document.get("Resources")
    if not isinstance(resources, dict) or not resources:
        raise ValidationError("Template format error: At least one Resources member must be defined.")
    template = Template(
        body=body, document=document, resources={key: _definition(key, value) for key, value in resources.items()}
    )
    _check_names(template)
    return template


def _read(body: str) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        try:
            document = yaml.load(body, Loader=_Loader)  # noqa: S506 - _Loader is a SafeLoader
        except yaml.YAMLError as error:
            raise ValidationError(f"Template format error: YAML not well-formed. {error}") from None
    if not isinstance(document, dict):
        raise ValidationError("Template format error: unsupported structure.")
    return document


def _definition(logical_id: str, entry: Any) -> ResourceDefinition:  # noqa: ANN401 - a template holds anything
    if not logical_id.isalnum():
        raise ValidationError(f"Template format error: Resource name {logical_id} is non alphanumeric.")
    if not isinstance(entry, dict) or not isinstance(entry.get("Type"), str):
        raise ValidationError(f"Template format error: [/Resources/{logical_id}] Every Resources member needs a Type.")
    unknown = sorted(set(entry) - RESOURCE_KEYS)
    if unknown:
        raise ValidationError(f"Invalid template resource property {_names(unknown)} in [{logical_id}]")
    for unsupported in ("CreationPolicy", "UpdatePolicy"):
        if entry.get(unsupported):
            raise ValidationError(f"{unsupported} of [{logical_id}] is not supported by the local AWS.")
    depends_on = entry.get("DependsOn") or ()
    deletion_policy = _policy(logical_id, entry, "DeletionPolicy")
    return ResourceDefinition(
        logical_id=logical_id,
        type=entry["Type"],
        properties=entry.get("Properties") or {},
        depends_on=(depends_on,) if isinstance(depends_on, str) else tuple(depends_on),
        condition=entry.get("Condition"),
        metadata=entry.get("Metadata") or {},
        deletion_policy=deletion_policy,
        update_replace_policy=_policy(logical_id, entry, "UpdateReplacePolicy"),
    )


def _policy(logical_id: str, entry: Mapping[str, Any], key: str) -> str:
    policy = entry.get(key, "Delete")
    if policy not in POLICIES:
        raise ValidationError(f"{key} of [{logical_id}] is '{policy}'; the local AWS knows {', '.join(POLICIES)}.")
    return str(policy)


def _check_names(template: Template) -> None:
    """Every condition and every DependsOn that is named exists."""
    conditions = template.section("Conditions")
    for definition in template.resources.values():
        if definition.condition is not None and definition.condition not in conditions:
            raise ValidationError(
                f"Template format error: Unresolved condition dependency [{definition.condition}] in the Resources "
                f"block of the template ([{definition.logical_id}])"
            )
        missing = sorted(set(definition.depends_on) - set(template.resources))
        if missing:
            raise ValidationError(
                f"Template format error: Unresolved resource dependencies {_names(missing)} in the Resources block "
                "of the template"
            )


def _names(names: list[str]) -> str:
    return f"[{', '.join(names)}]"
