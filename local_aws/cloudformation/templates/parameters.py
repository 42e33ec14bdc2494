"""Values of a template's parameters, from the request, the stack's previous values or the defaults, and their checks.

Source of rules and error texts: CloudFormation user guide, "Parameters".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from local_aws.cloudformation.errors import ValidationError, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local_aws.cloudformation.templates.template import Template


SSM_VALUE: Final = "AWS::SSM::Parameter::Value<"
LIST_TYPES: Final = ("CommaDelimitedList", "List<")
HIDDEN: Final = "****"
NUMBER: Final = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
PLAIN_TYPES: Final = frozenset({"String", "Number", "List<Number>", "CommaDelimitedList"})
SSM_TYPES: Final = frozenset(
    {
        "AWS::SSM::Parameter::Name", "AWS::SSM::Parameter::Value<String>", "AWS::SSM::Parameter::Value<List<String>>",
        "AWS::SSM::Parameter::Value<CommaDelimitedList>",
    }
)  # fmt: skip
# Types whose values AWS looks up in the account: a key pair, an image, a VPC and its parts, a hosted zone.
LOOKED_UP: Final = re.compile(r"(List<)?AWS::(EC2|Route53|SSM)::[\w:<>]+")
KEYS: Final = frozenset(
    {
        "AllowedPattern", "AllowedValues", "ConstraintDescription", "Default", "Description", "MaxLength", "MaxValue",
        "MinLength", "MinValue", "NoEcho", "Type",
    }
)  # fmt: skip
# Constraints of text, and of numbers (cfn-lint's schema of a parameter).
FOR_TEXT: Final = ("AllowedPattern", "MaxLength", "MinLength")
FOR_NUMBERS: Final = ("MaxValue", "MinValue")
PARAMETER_LIMIT: Final = 200
VALUE_LIMIT: Final = 4096
DESCRIPTION_LIMIT: Final = 4000


def check_parameters(declared: Mapping[str, Any]) -> None:
    """Reject parameter declarations that CloudFormation would reject, before any given value is checked.

    Raises:
        ValidationError: a name, a type or a key of a parameter is not allowed, or its default breaks its constraints.
    """
    if len(declared) > PARAMETER_LIMIT:
        raise ValidationError(
            f"Template format error: Number of parameters, {len(declared)}, is greater than maximum allowed, "
            f"{PARAMETER_LIMIT}"
        )
    for key, spec in declared.items():
        if not (key.isascii() and key.isalnum()):
            raise ValidationError(f"Template format error: Parameter name {key} is non alphanumeric.")
        if not isinstance(spec, dict) or not isinstance(spec.get("Type"), str):
            raise ValidationError("Template format error: Every Parameters object must contain a Type member.")
        _check_type(spec["Type"])
        _check_keys(key, spec)
        default = _default(spec)
        if default is not None and not spec["Type"].startswith(SSM_VALUE):
            _parameter(key, spec, default, str)


def _check_type(type_name: str) -> None:
    if type_name in PLAIN_TYPES | SSM_TYPES:
        return
    if LOOKED_UP.fullmatch(type_name):
        raise unsupported(f"parameter type {type_name}", allowed=", ".join(sorted(PLAIN_TYPES | SSM_TYPES)))
    raise ValidationError(
        f"Template format error: Unrecognized parameter type: {type_name}. Valid values are "
        f"{', '.join(sorted(PLAIN_TYPES))}."
    )


def _check_keys(key: str, spec: Mapping[str, Any]) -> None:
    if unknown := sorted(set(spec) - KEYS):
        raise ValidationError(f"Invalid template parameter property '{unknown[0]}' of [{key}]")
    for name in FOR_TEXT if spec["Type"] == "Number" else FOR_NUMBERS:
        if name in spec:
            raise ValidationError(f"Template error: Parameter '{key}' of type {spec['Type']} cannot have {name}.")
    for name in ("Default", "Description", "ConstraintDescription"):
        if isinstance(spec.get(name), (dict, list)):
            raise ValidationError(f"Template format error: Every {name} member must be a string. ([{key}])")
    if len(str(spec.get("Description", "")).encode()) > DESCRIPTION_LIMIT:
        raise ValidationError(f"Template format error: Description of [{key}] exceeds {DESCRIPTION_LIMIT} bytes.")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a stack: `given` is the value that the user passed, `value` the value that a `Ref` gives."""

    key: str
    given: str
    value: Any
    is_ssm: bool
    no_echo: bool

    def described(self) -> dict[str, str]:
        """Return the parameter's entry in DescribeStacks; the value of a NoEcho parameter is masked."""
        entry = {"ParameterKey": self.key, "ParameterValue": HIDDEN if self.no_echo else self.given}
        if self.is_ssm:
            entry["ResolvedValue"] = HIDDEN if self.no_echo else _joined(self.value)
        return entry


def resolve_parameters(
    template: Template,
    given: Sequence[Mapping[str, Any]],
    previous: Mapping[str, Parameter],
    lookup_ssm: Callable[[str], str],
) -> dict[str, Parameter]:
    """Return a stack's parameters; each value comes from the request, the previous value or the default.

    Args:
        template: the template with its Parameters.
        given: entries of the request, `{"ParameterKey", "ParameterValue"}` or `{"ParameterKey", "UsePreviousValue"}`.
        previous: the stack's parameters before this operation.
        lookup_ssm: reads an SSM parameter, for parameters of type `AWS::SSM::Parameter::Value<…>`.

    Raises:
        ValidationError: a parameter is unknown, missing or not allowed; the text names the parameter.
    """
    declared = template.section("Parameters")
    passed = {entry["ParameterKey"]: _passed(entry, previous) for entry in given}
    unknown = sorted(set(passed) - set(declared))
    if unknown:
        raise ValidationError(f"Parameters: [{', '.join(unknown)}] do not exist in the template")
    texts = {key: passed.get(key, _default(spec)) for key, spec in declared.items()}
    missing = sorted(key for key, text in texts.items() if text is None)
    if missing:
        raise ValidationError(f"Parameters: [{', '.join(missing)}] must have values")
    for key, text in texts.items():
        if len(str(text).encode()) > VALUE_LIMIT:
            raise ValidationError(f"Parameter '{key}' exceeds the maximum length of {VALUE_LIMIT} bytes.")
    return {key: _parameter(key, spec, str(texts[key]), lookup_ssm) for key, spec in declared.items()}


def _passed(entry: Mapping[str, Any], previous: Mapping[str, Parameter]) -> str | None:
    if not entry.get("UsePreviousValue"):
        return entry.get("ParameterValue")
    key = entry["ParameterKey"]
    if key not in previous:
        raise ValidationError(f"Invalid input for parameter key {key}. Cannot specify usePreviousValue as true")
    return previous[key].given


def _default(spec: Mapping[str, Any]) -> str | None:
    default = spec.get("Default")
    return None if default is None else as_given(default)


def as_given(scalar: Any) -> str:  # a text, a number or a boolean of JSON
    """Convert a default or an allowed value to the text that a caller would pass: `true`, `1`, `x`."""
    if isinstance(scalar, bool):
        return "true" if scalar else "false"
    return str(scalar)


def _parameter(key: str, spec: Mapping[str, Any], text: str, lookup_ssm: Callable[[str], str]) -> Parameter:
    type_name = str(spec["Type"])
    is_ssm = type_name.startswith(SSM_VALUE)
    inner = type_name.removeprefix(SSM_VALUE).removesuffix(">") if is_ssm else type_name
    is_list = inner.startswith(LIST_TYPES)
    # The constraints of an SSM parameter are about its name, which is what the caller gives.
    for one in _items(text) if is_list and not is_ssm else [text]:
        _check(key, spec, one, "String" if is_ssm else type_name)
    resolved = lookup_ssm(text) if is_ssm else text
    value: Any = _items(resolved) if is_list else resolved
    no_echo = str(spec.get("NoEcho", "false")).lower() == "true"
    return Parameter(key=key, given=text, value=value, is_ssm=is_ssm, no_echo=no_echo)


def _items(text: str) -> list[str]:
    """Split a list parameter's text into its items, without the spaces around each item."""
    return [part.strip() for part in text.split(",")] if text else []


def _check(key: str, spec: Mapping[str, Any], text: str, type_name: str) -> None:
    """Reject a value, or one item of a list, that breaks a constraint of the parameter."""
    allowed = [as_given(value) for value in spec.get("AllowedValues", [])]
    if allowed and text not in allowed:
        _reject(key, spec, f"Parameter '{key}' must be one of AllowedValues: {', '.join(allowed)} (it is '{text}')")
    pattern = spec.get("AllowedPattern")
    if pattern is not None and re.fullmatch(pattern, text) is None:
        _reject(key, spec, f"Parameter '{key}' must match pattern {pattern} (it is '{text}')")
    _check_bounds(key, spec, len(text), ("MinLength", "MaxLength"))
    if type_name in {"Number", "List<Number>"}:
        if NUMBER.fullmatch(text) is None:
            _reject(key, spec, f"Parameter '{key}' must be a number (it is '{text}')")
        _check_bounds(key, spec, float(text), ("MinValue", "MaxValue"))


def _check_bounds(key: str, spec: Mapping[str, Any], size: float, names: tuple[str, str]) -> None:
    low, high = (spec.get(name) for name in names)
    if (low is not None and size < float(low)) or (high is not None and size > float(high)):
        _reject(key, spec, f"Parameter '{key}' must be within {names[0]} {low} and {names[1]} {high} (it is {size})")


def _reject(key: str, spec: Mapping[str, Any], message: str) -> None:
    constraint = spec.get("ConstraintDescription")
    if constraint:
        message = f"Parameter '{key}' failed to satisfy constraint: {constraint}"
    raise ValidationError(message)


def _joined(value: Any) -> str:  # a text or a list of texts
    return ",".join(value) if isinstance(value, list) else str(value)
