"""Which names an expression of a template refers to: the source of the order of work and of a change's causes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# `${Name}` or `${Name.Attribute}`; `${!Literal}` is text.
SUB_VARIABLE: Final = re.compile(r"\$\{([^!}][^}]*)\}")


@dataclass(frozen=True, order=True)
class Reference:
    """A `Ref` to `target`, or a `Fn::GetAtt` when there is an attribute ("" for a Ref)."""

    target: str
    attribute: str = ""

    def __str__(self) -> str:
        """As change sets name a causing entity: `Bucket` or `Bucket.Arn`."""
        return f"{self.target}.{self.attribute}" if self.attribute else self.target


def references(node: Any, conditions: Mapping[str, bool] | None = None) -> set[Reference]:  # noqa: ANN401 - any JSON
    """All references of an expression.

    Args:
        node: any part of a template.
        conditions: values of the template's conditions; with them only the branch taken of a `Fn::If` counts.
    """
    return set(_walk(node, conditions or {}))


def _walk(node: Any, conditions: Mapping[str, bool]) -> Iterator[Reference]:  # noqa: ANN401 - any JSON
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


def _function(key: str, value: Any, conditions: Mapping[str, bool]) -> Iterator[Reference]:  # noqa: ANN401 - any JSON
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


def _sub(value: Any, conditions: Mapping[str, bool]) -> Iterator[Reference]:  # noqa: ANN401 - any JSON
    text, variables = (value, {}) if isinstance(value, str) else (value[0], value[1])
    for name in SUB_VARIABLE.findall(text):
        if name.strip() not in variables:
            target, _, attribute = name.strip().partition(".")
            yield Reference(target, attribute)
    yield from _walk(list(variables.values()), conditions)


def get_att_parts(value: Any) -> tuple[str, str]:  # noqa: ANN401 - any JSON
    """The resource and the attribute of a `Fn::GetAtt`, from both of its spellings."""
    if isinstance(value, str):
        target, _, attribute = value.partition(".")
        return target, attribute
    attribute = value[1] if isinstance(value[1], str) else ""
    return str(value[0]), attribute
