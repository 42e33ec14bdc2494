"""The form of intrinsic functions: the number and types of their arguments, and the functions allowed inside them.

The forms come from cfn-lint's schemas of intrinsic functions, for templates without a transform. An error text is
CloudFormation's own text if a public report quotes it.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, Final

from local_aws.cloudformation.errors import ValidationError, unsupported
from local_aws.cloudformation.templates.intrinsics import FUNCTIONS, LOGIC, SUB_NAME, SUB_VARIABLE, short_text
from local_aws.cloudformation.templates.schemas import data_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


CONDITION_FUNCTIONS: Final = ("Fn::And", "Fn::Equals", "Fn::Not", "Fn::Or")
BOOLEAN: Final = {"Conditions": CONDITION_FUNCTIONS, "Rules": tuple(LOGIC)}
"""The boolean functions of the sections that have any."""
TEXTS: Final = {
    "Ref": "every Ref object must have a single String value",
    "Fn::And": "every Fn::And object requires a list of at least 2 and at most 10 boolean parameters",
    "Fn::Equals": "every Fn::Equals object requires a list of 2 string parameters",
    "Fn::FindInMap": "every Fn::FindInMap object requires three parameters, the map name, map key and the attribute "
    "for return value",
    "Fn::GetAtt": "every Fn::GetAtt object requires two non-empty parameters, the resource name and the resource "
    "attribute",
    "Fn::If": "Fn::If requires a list argument with three parameters",
    "Fn::Join": "every Fn::Join object requires two parameters, (1) a string delimiter and (2) a list of strings to be "
    "joined or a function that returns a list of strings (such as Fn::GetAZs) to be joined",
    "Fn::Not": "every Fn::Not object requires one boolean parameter",
    "Fn::Or": "every Fn::Or object requires a list of at least 2 and at most 10 boolean parameters",
    "Fn::Select": "every Fn::Select object requires two non-empty parameters, the first an integer index and the "
    "second a list",
    "Fn::Split": "every Fn::Split object requires two parameters, (1) a string delimiter and (2) a string to be split "
    "or a function that returns a string to be split",
    "Fn::Sub": "One or more Fn::Sub intrinsic functions don't specify expected arguments. Specify a string as first "
    "argument, and an optional second argument to specify a mapping of values to replace in the string",
}
"""CloudFormation's text for a malformed function, by function."""


def check_functions(node: Any, block: str) -> None:
    """Reject malformed functions anywhere in a part of a template, also in branches of `Fn::If` that are not used.

    Args:
        node: the part.
        block: the section that the part is of; Conditions and Rules have boolean functions too.

    Raises:
        ValidationError: a function is malformed or not known; the text names the function and what is wrong.
    """
    allowed = {*FUNCTIONS, *BOOLEAN.get(block, ())}
    for key, value in _calls(node):
        if key not in allowed:
            raise unsupported(f"intrinsic function {key} in {block}", allowed=", ".join(sorted(allowed)))
        if key in _documents():
            fault = _Form(_documents()[key], inside_rules=block == "Rules").fault(value)
            if fault is not None:
                raise ValidationError(f"Template error: {TEXTS.get(key, f'{key} is malformed')}. ({fault})")
        if key == "Fn::Sub":
            _check_variables(value)
        if key == "Fn::Split" and value[0] == "":
            raise ValidationError(f"Template error: {TEXTS[key]}. (the delimiter is empty)")


def check_condition(name: str, node: Any, block: str) -> None:
    """Reject a condition in Conditions or Rules that is not a boolean function.

    Raises:
        ValidationError: the expression is no condition, or a function in it is malformed.
    """
    function = next(iter(node), None) if isinstance(node, dict) and len(node) == 1 else None
    if function != "Condition" and function not in BOOLEAN[block]:
        raise ValidationError(
            "Template format error: Conditions can only be boolean operations on parameters and other conditions. "
            f"({name} is {short_text(node)})"
        )
    check_functions(node, block)


def _calls(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield every intrinsic function in a part of a template with its argument; outer functions come first."""
    if isinstance(node, list):
        for item in node:
            yield from _calls(item)
    elif isinstance(node, dict):
        if (key := _function(node)) is not None:
            yield key, node[key]
        for value in node.values():
            yield from _calls(value)


def _function(node: Any) -> str | None:
    if isinstance(node, dict) and len(node) == 1:
        (key,) = node
        if key == "Ref" or key.startswith("Fn::"):
            return str(key)
    return None


def _check_variables(value: Any) -> None:
    text = value if isinstance(value, str) else value[0]
    for match in SUB_VARIABLE.finditer(text):
        name = match.group("name")
        if name is not None and SUB_NAME.fullmatch(name.strip()) is None:
            raise ValidationError(
                "Template error: variable names in Fn::Sub syntax must contain only alphanumeric characters, "
                f"underscores, periods, and colons. (${{{name}}})"
            )


@functools.cache
def _documents() -> dict[str, Mapping[str, Any]]:
    """Return cfn-lint's schemas of the intrinsic functions that the engine resolves, by function name."""
    folder = data_folder() / "other" / "functions"
    found = {}
    for key in (*FUNCTIONS, *CONDITION_FUNCTIONS):
        file = folder / f"{key.removeprefix('Fn::').lower()}.json"
        if file.is_file():
            found[key] = json.loads(file.read_text(encoding="utf-8"))
    return found


class _Form:
    """Checks the argument of an intrinsic function against cfn-lint's schema of that function.

    Only the keywords that these schemas use are supported: `cfnContext` (the functions that may replace a literal), the
    branch for templates without a transform, and common keywords of JSON Schema.
    """

    def __init__(self, document: Mapping[str, Any], *, inside_rules: bool) -> None:
        self._document = document
        self._inside_rules = inside_rules

    def fault(self, value: Any) -> str | None:
        """Return the fault of an argument as text; None if it has no fault."""
        return self._fault(self._document, value)

    def _fault(self, schema: Any, value: Any) -> str | None:
        if not isinstance(schema, dict):
            return None
        if "$ref" in schema:
            return self._fault(self._at(schema["$ref"]), value)
        if "cfnContext" in schema:
            return self._in_context(schema["cfnContext"], value)
        faults = (
            self._branch(schema, value),
            _kind_fault(schema, value),
            self._items_fault(schema, value) if isinstance(value, list) else None,
            self._members_fault(schema, value) if isinstance(value, dict) else None,
        )
        return next((fault for fault in faults if fault is not None), None)

    def _at(self, pointer: str) -> Any:
        found: Any = self._document
        for part in pointer.removeprefix("#/").split("/"):
            found = found[int(part)] if isinstance(found, list) else found[part]
        return found

    def _in_context(self, context: Mapping[str, Any], value: Any) -> str | None:
        functions = context["functions"]
        allowed = self._at(functions["$ref"]) if isinstance(functions, dict) else functions
        key = _function(value) or ("Condition" if isinstance(value, dict) and set(value) == {"Condition"} else None)
        if key is None or (key == "Condition" and key not in allowed):
            return self._fault(context["schema"], value)
        return None if key in allowed else f"{key} is not supported in this place"

    def _branch(self, schema: Mapping[str, Any], value: Any) -> str | None:
        if "if" not in schema:
            return None
        holds = self._inside_rules and schema["if"].get("dynamicValidation", {}).get("pathCheck") == "Rules"
        return self._fault(schema.get("then" if holds else "else"), value)

    def _items_fault(self, schema: Mapping[str, Any], value: list[Any]) -> str | None:
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return f"{len(value)} parameters"
        first = schema.get("prefixItems", [])
        faults = [self._fault(one, item) for one, item in zip(first, value, strict=False)]
        faults += [self._fault(schema.get("items"), item) for item in value[len(first) :]]
        return next((fault for fault in faults if fault is not None), None)

    def _members_fault(self, schema: Mapping[str, Any], value: dict[str, Any]) -> str | None:
        for pattern, inner in schema.get("patternProperties", {}).items():
            for key, item in value.items():
                if re.fullmatch(pattern, key) is None:
                    return f"name {key}"
                if (fault := self._fault(inner, item)) is not None:
                    return fault
        return None


def _kind_fault(schema: Mapping[str, Any], value: Any) -> str | None:
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is_kind(value, kind) for kind in kinds):
        return f"{short_text(value)} is no {' or '.join(kinds)}"
    if "minimum" in schema and int(value) < schema["minimum"]:
        return f"{value} is below {schema['minimum']}"
    if "pattern" in schema and isinstance(value, str) and re.search(schema["pattern"], value) is None:
        return f"{value} does not match {schema['pattern']}"
    return None


def _is_kind(value: Any, kind: str) -> bool:
    """Return True if a literal has the JSON type `kind`; as in CloudFormation, a number may be text and the reverse."""
    if kind == "array":
        return isinstance(value, list)
    if kind == "object":
        return isinstance(value, dict)
    if isinstance(value, (list, dict)):
        return False
    if kind == "integer":
        return not isinstance(value, bool) and re.fullmatch(r"-?\d+", str(value)) is not None
    return kind in {"string", "number"} or (kind == "boolean" and isinstance(value, bool))
