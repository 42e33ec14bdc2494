"""Read templates in JSON or YAML from a request's body or from S3, and check the form of their resources.

YAML short forms (`!Ref`, `!Sub`, `!GetAtt A.B` …) become the long forms, so that the other modules handle one spelling
only (AWS: CloudFormation user guide, "Intrinsic function reference").
"""

from __future__ import annotations

import functools
import ipaddress
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import yaml
from botocore.exceptions import ClientError

from local_aws.cloudformation.errors import ValidationError, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
POLICIES: Final = {
    "DeletionPolicy": ("Delete", "Retain", "RetainExceptOnCreate"),
    "UpdateReplacePolicy": ("Delete", "Retain"),
}
VERSION: Final = "2010-09-09"


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
    """A template: its text (`body`) and its parsed content."""

    body: str
    document: Mapping[str, Any]
    resources: Mapping[str, ResourceDefinition]

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a section such as `Parameters`; empty when the template has none."""
        section: Mapping[str, Any] = self.document.get(name) or {}
        return section


# CloudFormation quotas: "Template body size in a request" and "in an S3 object". Texts of the errors: issues
# aws/aws-extensions-for-dotnet-cli#50 and aws-samples/sample-autonomous-cloud-coding-agents#806.
BODY_LIMIT: Final = 51_200
OBJECT_LIMIT_BYTES: Final = 1_000_000
SHOWN: Final = 40


class _Loader(yaml.SafeLoader):
    """A YAML loader that knows CloudFormation's tags, and reads a policy's version `2012-10-17` as text, not date."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose the next YAML node; reject aliases (error text from seeebiii/aws-cloudformation-templates#1)."""
        if self.check_event(yaml.AliasEvent):
            raise ValidationError("Template error: YAML aliases are not allowed in CloudFormation templates")
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


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
    """Parse a template's text and check its form.

    Raises:
        ValidationError: the text is neither JSON nor YAML, or a section or a resource is malformed.
    """
    document = _read(body)
    unknown = sorted(set(document) - SECTIONS)
    if unknown:
        raise ValidationError(f"Invalid template property or properties {_names(unknown)}")
    if document.get("AWSTemplateFormatVersion", VERSION) != VERSION:
        raise ValidationError("Template format error: unsupported value for AWSTemplateFormatVersion.")
    if (null := _null(document)) is not None:
        raise ValidationError(f"[{null}] 'null' values are not allowed in templates")
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


def _null(node: Any, path: str = "") -> str | None:
    """Return the path of the first null in a template; None if the template contains no null."""
    if node is None:
        return path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    found = (_null(item, f"{path}/{key}") for key, item in items)
    return next((one for one in found if one is not None), None)


def _definition(logical_id: str, entry: Any) -> ResourceDefinition:  # a template holds anything
    if not (logical_id.isascii() and logical_id.isalnum()):
        raise ValidationError(f"Template format error: Resource name {logical_id} is non alphanumeric.")
    if not isinstance(entry, dict) or not isinstance(entry.get("Type"), str):
        raise ValidationError(f"Template format error: [/Resources/{logical_id}] Every Resources member needs a Type.")
    _check_keys(logical_id, entry)
    depends_on = entry.get("DependsOn") or ()
    return ResourceDefinition(
        logical_id=logical_id,
        type=entry["Type"],
        properties=entry.get("Properties") or {},
        depends_on=(depends_on,) if isinstance(depends_on, str) else tuple(depends_on),
        condition=entry.get("Condition"),
        metadata=entry.get("Metadata") or {},
        deletion_policy=_policy(logical_id, entry, "DeletionPolicy"),
        update_replace_policy=_policy(logical_id, entry, "UpdateReplacePolicy"),
    )


def _check_keys(logical_id: str, entry: Mapping[str, Any]) -> None:
    """Reject an entry of Resources with an unknown key, or with a value of the wrong type."""
    unknown = sorted(set(entry) - RESOURCE_KEYS)
    if unknown:
        raise ValidationError(f"Invalid template resource property {_names(unknown)} in [{logical_id}]")
    for key in ("CreationPolicy", "UpdatePolicy"):
        if entry.get(key):
            raise unsupported(f"{key} of [{logical_id}]")
    depends_on = entry.get("DependsOn") or ()
    if not isinstance(depends_on, str) and not all(isinstance(one, str) for one in depends_on):
        raise ValidationError(f"Template format error: DependsOn of [{logical_id}] must be a string or strings.")
    if not isinstance(entry.get("Condition", ""), str):
        raise ValidationError(f"Template format error: Every Condition member must be a string. ([{logical_id}])")
    if not isinstance(entry.get("Properties", {}), dict):
        raise ValidationError(f"Template format error: Properties of [{logical_id}] must be a map.")


def _policy(logical_id: str, entry: Mapping[str, Any], key: str) -> str:
    policy = entry.get(key, "Delete")
    if not isinstance(policy, str):
        raise ValidationError(f"Template format error: Every {key} member must be a string. ([{logical_id}])")
    if policy not in POLICIES[key]:
        raise unsupported(f"{key} {policy} of [{logical_id}]", allowed=", ".join(POLICIES[key]))
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
    """Return the text of the template that a request contains or names; `s3` returns a client for reading it from S3.

    Raises:
        ValidationError: the request names no template, the S3 object cannot be read, or the template is too large.
    """
    if request.get("TemplateBody"):
        body = str(request["TemplateBody"])
        if len(body.encode()) > BODY_LIMIT:
            raise ValidationError(
                "1 validation error detected: Value at 'templateBody' failed to satisfy constraint: Member must have "
                f"length less than or equal to {BODY_LIMIT}"
            )
        return body
    if not request.get("TemplateURL"):
        raise ValidationError("Either Template URL or Template Body must be specified.")
    bucket, key = s3_location(str(request["TemplateURL"]))
    try:
        answer = s3().get_object(Bucket=bucket, Key=key)
    except ClientError as error:
        raise ValidationError(f"S3 error: cannot read the template s3://{bucket}/{key}: {error}") from None
    with answer["Body"] as stored:
        if answer["ContentLength"] > OBJECT_LIMIT_BYTES:
            raise ValidationError(f"Template may not exceed {OBJECT_LIMIT_BYTES} bytes in size.")
        return str(stored.read().decode("utf-8"))


def s3_location(url: str) -> tuple[str, str]:
    """Return the bucket and the key that an S3 URL names.

    The URL is `https://BUCKET.s3.REGION.amazonaws.com/KEY` or `https://s3.REGION.amazonaws.com/BUCKET/KEY`. If the
    caller has set AWS_ENDPOINT_URL, the URL names this machine: `http://127.0.0.1:PORT/BUCKET/KEY`.

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
