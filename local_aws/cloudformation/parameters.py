"""Parameters of a template: their values for one stack, checked against what the template allows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from local_aws.cloudformation.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local_aws.cloudformation.template import Template

SSM_VALUE: Final = "AWS::SSM::Parameter::Value<"
LIST_TYPES: Final = ("CommaDelimitedList", "List<")
HIDDEN: Final = "****"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a stack: `given` is what the user passed, `value` what a `Ref` to it gives."""

    key: str
    given: str
    value: Any
    is_ssm: bool
    no_echo: bool

    def described(self) -> dict[str, str]:
        """The entry of DescribeStacks; a NoEcho value is masked."""
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
    """Bring together what was passed, what the stack had before and the template's defaults.

    Args:
        template: the template with its Parameters.
        given: entries of the request, `{"ParameterKey", "ParameterValue"}` or `{"ParameterKey", "UsePreviousValue"}`.
        previous: the stack's parameters before this operation.
        lookup_ssm: reads an SSM parameter, for parameters of type `AWS::SSM::Parameter::Value<…>`.

    Raises:
        ValidationError: one is unknown, missing or not allowed; the text names it.
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
    if isinstance(default, bool):
        return "true" if default else "false"
    return None if default is None else str(default)


def _parameter(key: str, spec: Mapping[str, Any], text: str, lookup_ssm: Callable[[str], str]) -> Parameter:
    _check(key, spec, text)
    type_name = str(spec.get("Type", "String"))
    is_ssm = type_name.startswith(SSM_VALUE)
    resolved = lookup_ssm(text) if is_ssm else text
    inner = type_name.removeprefix(SSM_VALUE) if is_ssm else type_name
    value: Any = resolved
    if inner.startswith(LIST_TYPES):
        value = [part.strip() for part in resolved.split(",")] if resolved else []
    no_echo = str(spec.get("NoEcho", "false")).lower() == "true"
    return Parameter(key=key, given=text, value=value, is_ssm=is_ssm, no_echo=no_echo)


def _check(key: str, spec: Mapping[str, Any], text: str) -> None:
    allowed = [str(value) for value in spec.get("AllowedValues", [])]
    if allowed and text not in allowed:
        _refuse(key, spec, f"Parameter '{key}' must be one of AllowedValues: {', '.join(allowed)} (it is '{text}')")
    pattern = spec.get("AllowedPattern")
    if pattern is not None and re.fullmatch(pattern, text) is None:
        _refuse(key, spec, f"Parameter '{key}' must match pattern {pattern} (it is '{text}')")
    _check_bounds(key, spec, len(text), ("MinLength", "MaxLength"))
    if spec.get("Type") == "Number":
        try:
            _check_bounds(key, spec, float(text), ("MinValue", "MaxValue"))
        except ValueError:
            _refuse(key, spec, f"Parameter '{key}' must be a number (it is '{text}')")


def _check_bounds(key: str, spec: Mapping[str, Any], size: float, names: tuple[str, str]) -> None:
    low, high = (spec.get(name) for name in names)
    if (low is not None and size < float(low)) or (high is not None and size > float(high)):
        _refuse(key, spec, f"Parameter '{key}' must be within {names[0]} {low} and {names[1]} {high} (it is {size})")


def _refuse(key: str, spec: Mapping[str, Any], message: str) -> None:
    constraint = spec.get("ConstraintDescription")
    if constraint:
        message = f"Parameter '{key}' failed to satisfy constraint: {constraint}"
    raise ValidationError(message)


def _joined(value: Any) -> str:  # noqa: ANN401 - a text or a list of texts
    return ",".join(value) if isinstance(value, list) else str(value)
