"""Templates: read JSON and YAML from a body or from S3, check their form, and give parameters their values.

YAML short forms (`!Ref`, `!Sub`, `!GetAtt A.B` …) become the long forms, so that the other modules handle one spelling
only (AWS: CloudFormation user guide, "Intrinsic function reference").
"""

from __future__ import annotations

import functools
import ipaddress
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import yaml
from botocore.exceptions import ClientError

from local_aws.cloudformation.errors import ValidationError, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
    """One entry of a template's Resources, with unresolved intrinsic functions."""

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
        """Return a section such as `Parameters`; empty when the template has none."""
        section: Mapping[str, Any] = self.document.get(name) or {}
        return section


class _Loader(yaml.SafeLoader):
    """A YAML loader for CloudFormation's tags. `2012-10-17` stays text, since a policy's version is not a date."""


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
        ValidationError: the text is neither JSON nor YAML, or a section or a resource is malformed.
    """
    document = _read(body)
    unknown = sorted(set(document) - SECTIONS)
    if unknown:
        raise ValidationError(f"Invalid template property or properties {_names(unknown)}")
    if document.get("Transform"):
        raise unsupported(f"Transform {document['Transform']}", fix="expand it first")
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


def _definition(logical_id: str, entry: Any) -> ResourceDefinition:  # a template holds anything
    if not logical_id.isalnum():
        raise ValidationError(f"Template format error: Resource name {logical_id} is non alphanumeric.")
    if not isinstance(entry, dict) or not isinstance(entry.get("Type"), str):
        raise ValidationError(f"Template format error: [/Resources/{logical_id}] Every Resources member needs a Type.")
    unknown = sorted(set(entry) - RESOURCE_KEYS)
    if unknown:
        raise ValidationError(f"Invalid template resource property {_names(unknown)} in [{logical_id}]")
    for key in ("CreationPolicy", "UpdatePolicy"):
        if entry.get(key):
            raise unsupported(f"{key} of [{logical_id}]")
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
        raise unsupported(f"{key} {policy} of [{logical_id}]", allowed=", ".join(POLICIES))
    return str(policy)


def _check_names(template: Template) -> None:
    """Check that every condition and every DependsOn that a resource names exists in the template."""
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


def template_body(request: Mapping[str, Any], s3: Callable[[], Any]) -> str:  # boto3's client
    """Return the text of the template that a request names; `s3` returns the client that reads it.

    Raises:
        ValidationError: the request names no template, or the S3 object cannot be read.
    """
    if request.get("TemplateBody"):
        return str(request["TemplateBody"])
    if not request.get("TemplateURL"):
        raise ValidationError("Either Template URL or Template Body must be specified.")
    bucket, key = s3_location(str(request["TemplateURL"]))
    try:
        answer = s3().get_object(Bucket=bucket, Key=key)
    except ClientError as error:
        raise ValidationError(f"S3 error: cannot read the template s3://{bucket}/{key}: {error}") from None
    return str(answer["Body"].read().decode("utf-8"))


def s3_location(url: str) -> tuple[str, str]:
    """Return bucket and key of an S3 URL.

    The URL is `https://BUCKET.s3.REGION.amazonaws.com/KEY`, `https://s3.REGION.amazonaws.com/BUCKET/KEY`, or with
    AWS_ENDPOINT_URL set an address of this machine, `http://127.0.0.1:PORT/BUCKET/KEY`.

    Raises:
        ValidationError: the URL has another form.
    """
    parts = urlsplit(url)
    host, path = parts.hostname or "", unquote(parts.path.lstrip("/"))
    bucket, _, _ = host.partition(".s3")
    if _is_path_style(host):
        bucket, _, path = path.partition("/")
    if not bucket or not path or (host == bucket and not _is_path_style(host)):
        raise ValidationError(f"TemplateURL must be a supported URL of an S3 object, not {url}")
    return bucket, path


def _is_path_style(host: str) -> bool:
    if host == "localhost" or host.startswith(("s3.", "s3-")):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


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
    """Return a stack's parameters from the request, the stack's previous values and the template's defaults.

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
        _reject(key, spec, f"Parameter '{key}' must be one of AllowedValues: {', '.join(allowed)} (it is '{text}')")
    pattern = spec.get("AllowedPattern")
    if pattern is not None and re.fullmatch(pattern, text) is None:
        _reject(key, spec, f"Parameter '{key}' must match pattern {pattern} (it is '{text}')")
    _check_bounds(key, spec, len(text), ("MinLength", "MaxLength"))
    if spec.get("Type") == "Number":
        try:
            _check_bounds(key, spec, float(text), ("MinValue", "MaxValue"))
        except ValueError:
            _reject(key, spec, f"Parameter '{key}' must be a number (it is '{text}')")


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
