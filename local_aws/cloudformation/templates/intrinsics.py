"""Resolve a template's intrinsic functions, pseudo parameters, conditions and dynamic references.

AWS: CloudFormation user guide, "Intrinsic function reference". An intrinsic function that is not supported is rejected
with an error that names it. The module also finds the references in an expression; they determine the order of a deploy
and the causes of changes in a change set.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from local_aws.cloudformation.errors import ValidationError, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from local_aws.cloudformation.templates.template import Template

# Stands for a value that is known only after the deploy, with the text that AWS's change sets have.
UNKNOWN: Final = "{{changeSet:KNOWN_AFTER_APPLY}}"
DYNAMIC: Final = re.compile(r"\{\{resolve:([a-z-]+):([^}]+)\}\}")
AVAILABILITY_ZONES: Final = ("a", "b", "c")
SHORT: Final = 100


class _NoValue:
    """The value of `AWS::NoValue`: a property or a list item that has this value is left out."""


NO_VALUE: Final = _NoValue()


class Values(Protocol):
    """The source of `Ref` and `Fn::GetAtt` values: either the deployed resources, or the plan of a change set."""

    def ref(self, logical_id: str) -> Any:  # the value of a Ref has any type
        """Return the value of a `Ref` to a resource."""

    def attribute(self, logical_id: str, name: str) -> Any:
        """Return the value of a `Fn::GetAtt`; raises ValidationError for an attribute that the type lacks."""


class Resolver:
    """Resolves expressions of one template for one stack.

    Args:
        template: the template, for its mappings, conditions and resources' names.
        names: values of parameters and pseudo parameters by name.
        values: values of resources.
        lookup_ssm: reads an SSM parameter, for `{{resolve:ssm:…}}`.
        import_value: reads another stack's export.
    """

    def __init__(
        self,
        template: Template,
        *,
        names: Mapping[str, Any],
        values: Values,
        lookup_ssm: Callable[[str], str],
        import_value: Callable[[str], Any],
    ) -> None:
        self._template = template
        self._names = names
        self._values = values
        self._lookup_ssm = lookup_ssm
        self._import_value = import_value
        self._conditions: dict[str, bool] = {}

    def resolve(self, node: Any) -> Any:
        """Return the resolved value of any part of a template, or `NO_VALUE` if the part must be omitted.

        Dynamic references (`{{resolve:…}}`) are resolved last: a function sees the reference instead of its value, and
        `Fn::Sub` or `Fn::Join` can build a reference.
        """
        return self._with_dynamic(self.evaluate(node))

    def evaluate(self, node: Any) -> Any:
        """Return the resolved value of any part of a template, but leave dynamic references unresolved."""
        if isinstance(node, dict):
            return self._evaluate_dict(node)
        if isinstance(node, list):
            return [value for item in node if (value := self.evaluate(item)) is not NO_VALUE]
        return node

    def _evaluate_dict(self, node: dict[str, Any]) -> Any:
        if len(node) == 1:
            ((key, value),) = node.items()
            if key in FUNCTIONS:
                return FUNCTIONS[key](self, value)
            if key.startswith("Fn::"):
                raise unsupported(f"intrinsic function {key}")
        return {key: value for key, raw in node.items() if (value := self.evaluate(raw)) is not NO_VALUE}

    def _with_dynamic(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._with_dynamic(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._with_dynamic(item) for item in value]
        return self._dynamic(value) if isinstance(value, str) else value

    def condition(self, name: str) -> bool:
        """Return the value of a condition of the template; raises ValidationError for an unknown name."""
        if name not in self._conditions:
            conditions = self._template.section("Conditions")
            if name not in conditions:
                raise ValidationError(f"Template format error: Unresolved condition dependency [{name}]")
            self._conditions[name] = self.holds(conditions[name])
        return self._conditions[name]

    def conditions(self) -> dict[str, bool]:
        """Return all conditions of the template with their values."""
        return {name: self.condition(name) for name in self._template.section("Conditions")}

    def holds(self, node: Any) -> bool:
        """Return True if a condition expression is true."""
        if isinstance(node, dict) and len(node) == 1:
            ((key, value),) = node.items()
            if key == "Condition":
                return self.condition(str(value))
            if key in LOGIC:
                return LOGIC[key](self, value)
        raise ValidationError(f"Template error: {json.dumps(node)} is no condition")

    def text(self, node: Any) -> str:
        """Resolve an expression and return its value as the text that `Fn::Join` and `Fn::Sub` insert."""
        return as_text(self.evaluate(node))

    def ref(self, name: Any) -> Any:
        """Return the value of a `Ref`."""
        if name == "AWS::NoValue":
            return NO_VALUE
        if name in self._names:
            return self._names[name]
        if name in self._template.resources:
            return self._values.ref(name)
        raise ValidationError(
            f"Template format error: Unresolved resource dependencies [{name}] in the Resources block of the template"
        )

    def get_att(self, value: Any) -> Any:
        """Return the value of a `Fn::GetAtt`."""
        if isinstance(value, list) and not isinstance(value[1], str):
            value = [value[0], self.text(value[1])]
        target, attribute = get_att_parts(value)
        if target not in self._template.resources:
            raise ValidationError(f"Template error: instance of Fn::GetAtt references undefined resource {target}")
        return self._values.attribute(target, attribute)

    def sub(self, value: Any) -> str:
        """Return the text of a `Fn::Sub`."""
        text, variables = (value, {}) if isinstance(value, str) else (value[0], value[1])

        def insert(match: re.Match[str]) -> str:
            if match.group("name") is None:
                return f"${{{match.group('literal')}}}"
            name = match.group("name").strip()
            if name in variables:
                return self.text(variables[name])
            return as_text(self.get_att(name) if "." in name else self.ref(name))

        # One pass: what an inserted value says of `${…}` is text.
        return SUB_VARIABLE.sub(insert, text)

    def find_in_map(self, value: list[Any]) -> Any:
        """Return the value of a `Fn::FindInMap`."""
        name, first, second = (self.text(part) for part in value[:3])
        try:
            return self._template.section("Mappings")[name][first][second]
        except KeyError:
            raise ValidationError(f"Template error: Unable to get mapping for {name}::{first}::{second}") from None

    def import_value(self, value: Any) -> Any:
        """Return the value of a `Fn::ImportValue`."""
        return self._import_value(self.text(value))

    def region_zones(self, value: Any) -> list[str]:
        """Return the availability zones for `Fn::GetAZs`; the argument "" means the stack's region."""
        region = self.text(value) or str(self._names["AWS::Region"])
        return [f"{region}{zone}" for zone in AVAILABILITY_ZONES]

    def _dynamic(self, text: str) -> str:
        def insert(match: re.Match[str]) -> str:
            service, name = match.groups()
            if service != "ssm":
                raise unsupported(f"dynamic reference {match.group(0)}", allowed="ssm")
            return self._lookup_ssm(name)

        return DYNAMIC.sub(insert, text)


def as_text(value: Any) -> str:  # the value is any scalar of JSON
    """Convert a scalar to text as CloudFormation does when it inserts one into a string: `true`, `1`, `x`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        raise ValidationError(f"Template error: {json.dumps(value)} stands where text is needed")
    return str(value)


def short_text(value: Any) -> str:  # any part of a template
    """Write a part of a template as JSON for an error text, cut after 100 characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"


def _join(resolver: Resolver, value: list[Any]) -> str:
    items = resolver.evaluate(value[1])
    if items == UNKNOWN:
        return UNKNOWN
    if not isinstance(items, list):
        raise ValidationError(f"Template error: Fn::Join needs a list to be joined, not {short_text(items)}")
    return as_text(value[0]).join(as_text(item) for item in items)


def _select(resolver: Resolver, value: list[Any]) -> Any:
    index, items = resolver.text(value[0]), resolver.evaluate(value[1])
    if items in ([UNKNOWN], UNKNOWN):
        return UNKNOWN
    if not isinstance(items, list):
        raise ValidationError(f"Template error: Fn::Select needs a list to select from, not {short_text(items)}")
    if not index.isdecimal() or int(index) >= len(items):
        raise ValidationError(f"Template error: Fn::Select cannot select nonexistent value at index {index}")
    return items[int(index)]


def _split(resolver: Resolver, value: list[Any]) -> list[str]:
    text = resolver.text(value[1])
    return [UNKNOWN] if UNKNOWN in text else text.split(str(value[0]))


def _if(resolver: Resolver, value: list[Any]) -> Any:
    return resolver.evaluate(value[1] if resolver.condition(str(value[0])) else value[2])


LOGIC: Final[dict[str, Callable[[Resolver, Any], bool]]] = {
    "Fn::Equals": lambda resolver, value: resolver.text(value[0]) == resolver.text(value[1]),
    "Fn::And": lambda resolver, value: all(resolver.holds(item) for item in value),
    "Fn::Or": lambda resolver, value: any(resolver.holds(item) for item in value),
    "Fn::Not": lambda resolver, value: not resolver.holds(value[0]),
    # The only function for Rules that the CDK writes: its check of the bootstrap version uses this function.
    "Fn::Contains": lambda resolver, value: resolver.text(value[1]) in map(as_text, resolver.evaluate(value[0])),
}
FUNCTIONS: Final[dict[str, Callable[[Resolver, Any], Any]]] = {
    "Ref": lambda resolver, value: resolver.ref(value),
    "Fn::GetAtt": lambda resolver, value: resolver.get_att(value),
    "Fn::Sub": lambda resolver, value: resolver.sub(value),
    "Fn::Join": _join,
    "Fn::Select": _select,
    "Fn::Split": _split,
    "Fn::If": _if,
    "Fn::FindInMap": lambda resolver, value: resolver.find_in_map(value),
    "Fn::Base64": lambda resolver, value: base64.b64encode(resolver.text(value).encode()).decode(),
    "Fn::GetAZs": lambda resolver, value: resolver.region_zones(value),
    "Fn::ImportValue": lambda resolver, value: resolver.import_value(value),
}


# `${Name}` or `${Name.Attribute}`; `${!Literal}` stands for the text `${Literal}`.
SUB_VARIABLE: Final = re.compile(r"\$\{(?:!(?P<literal>[^}]*)|(?P<name>[^!}][^}]*))\}")
SUB_NAME: Final = re.compile(r"[A-Za-z0-9_.:]+")


@dataclass(frozen=True, order=True)
class Reference:
    """A `Ref` to `target` if `attribute` is "", otherwise a `Fn::GetAtt` of that attribute."""

    target: str
    attribute: str = ""

    def __str__(self) -> str:
        """Return the reference in the form of a change set's CausingEntity: `Bucket` or `Bucket.Arn`."""
        return f"{self.target}.{self.attribute}" if self.attribute else self.target


def references(node: Any, conditions: Mapping[str, bool] | None = None) -> set[Reference]:
    """Return all references to resources and parameters in an expression.

    Args:
        node: any part of a template.
        conditions: values of the template's conditions; if given, only the taken branch of a `Fn::If` counts.
    """
    return set(_walk(node, conditions or {}))


def used_conditions(node: Any) -> set[str]:
    """Return the names of the conditions in all `Fn::If` functions of an expression."""
    return {str(value[0]) for value in _arguments(node, "Fn::If")}


def imported_names(node: Any) -> list[Any]:
    """Return the arguments of all `Fn::ImportValue` functions in an expression."""
    return list(_arguments(node, "Fn::ImportValue"))


def _arguments(node: Any, function: str) -> Iterator[Any]:
    if isinstance(node, dict):
        if set(node) == {function}:
            yield node[function]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from _arguments(item, function)


def _walk(node: Any, conditions: Mapping[str, bool]) -> Iterator[Reference]:
    if isinstance(node, list):
        for item in node:
            yield from _walk(item, conditions)
    elif isinstance(node, dict):
        if len(node) == 1:
            ((key, value),) = node.items()
            yield from _function(key, value, conditions)
        else:
            for value in node.values():
                yield from _walk(value, conditions)


def _function(key: str, value: Any, conditions: Mapping[str, bool]) -> Iterator[Reference]:
    if key == "Ref" and isinstance(value, str):
        yield Reference(value)
    elif key == "Fn::GetAtt":
        target, attribute = get_att_parts(value)
        yield Reference(target, attribute)
    elif key == "Fn::Sub":
        yield from _sub(value, conditions)
    elif key == "Fn::If" and isinstance(value, list) and value and value[0] in conditions:
        yield from _walk(value[1] if conditions[value[0]] else value[2], conditions)
    else:
        yield from _walk(value, conditions)


def _sub(value: Any, conditions: Mapping[str, bool]) -> Iterator[Reference]:
    text, variables = (value, {}) if isinstance(value, str) else (value[0], value[1])
    for match in SUB_VARIABLE.finditer(text):
        name = (match.group("name") or "").strip()
        if name and name not in variables:
            target, _, attribute = name.partition(".")
            yield Reference(target, attribute)
    yield from _walk(list(variables.values()), conditions)


def get_att_parts(value: Any) -> tuple[str, str]:
    """Return the resource and the attribute that a `Fn::GetAtt` names; its argument is `A.B` or a list."""
    if isinstance(value, str):
        target, _, attribute = value.partition(".")
        return target, attribute
    attribute = value[1] if isinstance(value[1], str) else ""
    return str(value[0]), attribute
