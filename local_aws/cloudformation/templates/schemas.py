"""The rules of resource types from AWS's schemas: properties, changes that replace the resource, and tags.

The schemas are those of AWS's CloudFormation registry, which cfn-lint ships. The module reads them from cfn-lint's data
folder, since importing cfn-lint takes two seconds.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SCHEMA_REGION: Final = "us-east-1"
_PREFIX: Final = "/properties/"
# Attributes that Fn::GetAtt gives and that the schemas do not list as read-only: the names of SageMaker's resources
# (CloudFormation template reference), and each property of the types that answer with all of them (cfn-lint's list).
_NAMED_ATTRIBUTES: Final = {
    "AWS::SageMaker::Endpoint": frozenset({"EndpointName"}),
    "AWS::SageMaker::EndpointConfig": frozenset({"EndpointConfigName"}),
    "AWS::SageMaker::Model": frozenset({"ModelName"}),
}
_ALL_PROPERTIES: Final = frozenset({"AWS::SNS::Topic", "AWS::SSM::Parameter"})

PropertyPath = tuple[str, ...]
"""The path of a property, one part per level; `*` stands for each item of a list."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The parts of a resource type's schema that the engine needs.

    Args:
        properties: the names of the properties, read-only ones included; empty if the type takes every property.
        required: properties without which a resource cannot be created.
        create_only: paths of properties whose change means a new resource.
        read_only: paths of properties that AWS sets and a template must not set.
        attributes: the attributes that Fn::GetAtt gives; None if the type may have any.
        taggable: whether the stack's tags are put on the resource.
        system_tags: whether the resource gets tags of the prefix `aws:cloudformation:`.
    """

    properties: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    create_only: frozenset[PropertyPath] = frozenset()
    read_only: frozenset[PropertyPath] = frozenset()
    attributes: frozenset[str] | None = None
    taggable: bool = False
    system_tags: bool = False

    def replaces(self, path: PropertyPath, before: Any, after: Any) -> bool:
        """Return True if a change of the value at `path` requires a new resource.

        The create-only property may be the value at the path, contain it, or be a part of it. A list index in `path`
        matches a `*` in the path of a create-only property.
        """
        return any(
            all(one in ("*", other) for one, other in zip(fixed, path, strict=False))
            and (len(fixed) <= len(path) or value_at(before, fixed[len(path) :]) != value_at(after, fixed[len(path) :]))
            for fixed in self.create_only
        )


@functools.cache
def schema_of(type_name: str) -> Schema:
    """Return the schema of a resource type.

    Raises:
        KeyError: cfn-lint has no schema of the type.
    """
    document = document_of(type_name)
    tagging = document.get("tagging", {})
    properties = frozenset(document["properties"])
    read_only = _paths(document, "readOnlyProperties")
    return Schema(
        properties=properties,
        required=frozenset(document.get("required", ())),
        create_only=_paths(document, "createOnlyProperties"),
        read_only=read_only,
        attributes=frozenset(".".join(path) for path in read_only)
        | _NAMED_ATTRIBUTES.get(type_name, frozenset())
        | (properties if type_name in _ALL_PROPERTIES else frozenset()),
        taggable=tagging.get("taggable", False),
        system_tags=tagging.get("cloudFormationSystemTags", False),
    )


def document_of(type_name: str) -> dict[str, Any]:
    """Return the schema of a resource type as JSON.

    Raises:
        KeyError: cfn-lint has no schema of the type.
    """
    return _read("resources", _index()[type_name])


def knows(type_name: str) -> bool:
    """Return True if AWS has a resource type of this name."""
    return type_name in _index()


def value_at(properties: Any, path: PropertyPath) -> Any:
    """Return the value at a path, or None; for a path with a `*`, return the values of all list items as a list."""
    for depth, part in enumerate(path):
        if part == "*":
            items = properties if isinstance(properties, list) else []
            values = [value_at(item, path[depth + 1 :]) for item in items]
            return [value for value in values if value not in (None, [])]
        if not isinstance(properties, dict) or part not in properties:
            return None
        properties = properties[part]
    return properties


@functools.cache
def _index() -> dict[str, str]:
    return _read("providers", SCHEMA_REGION)


def _read(kind: str, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((data_folder() / kind / f"{name}.json").read_text(encoding="utf-8"))
    return document


@functools.cache
def data_folder() -> Path:
    """Return cfn-lint's folder of schemas: of resource types by region, of functions, and of template sections."""
    spec = importlib.util.find_spec("cfnlint")
    assert spec is not None  # noqa: S101 - installed with the group `local`
    assert spec.origin is not None  # noqa: S101 - a package with an __init__.py
    return Path(spec.origin).parent / "data" / "schemas"


def _paths(document: dict[str, Any], key: str) -> frozenset[PropertyPath]:
    return frozenset(tuple(pointer.removeprefix(_PREFIX).split("/")) for pointer in document.get(key, ()))
