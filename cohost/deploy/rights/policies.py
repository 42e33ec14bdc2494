"""Two least IAM policies for a catalog's stacks: one for their caller, one for CloudFormation's role.

The policies name the resources of the synthesised templates. CloudFormation begins a generated name with the stack's
name, which it may shorten; so a policy has the beginning of the stack's name and a wildcard.
"""

from __future__ import annotations

import itertools
import json
import re
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cohost.deploy.rights.commands import COMMANDS
from cohost.deploy.rights.resource_types import rights_of
from cohost.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cohost.deploy.rights.resource_types import Grant

Template = dict[str, Any]
Values = dict[str, tuple[str, ...]]
Document = dict[str, Any]

POLICY_LIMIT: Final = 6144
"""The most characters of a managed policy without white space (IAM and STS quotas)."""

_CERTAIN_CHARACTERS: Final = 24
"""The characters of a stack's name that a generated name surely has; the rest may be cut. No page of AWS states the
rule; 24 is half of what a name of 63 characters has beside the random part and the separators."""

_QUALIFIER: Final = re.compile(r"/cdk-bootstrap/([^/]+)/version")
_DEFAULT_QUALIFIER: Final = "hnb659fds"


@dataclass(frozen=True, kw_only=True)
class Place:
    """The partition, region and account of the stacks, and the qualifier of their `cdk bootstrap`."""

    partition: str
    region: str
    account: str
    qualifier: str = _DEFAULT_QUALIFIER

    def values(self) -> Values:
        """Return the values of those placeholders that any ARN may contain."""
        return {
            "partition": (self.partition,),
            "region": (self.region,),
            "account": (self.account,),
            "qualifier": (self.qualifier,),
        }


def qualifier_of(template: Template) -> str:
    """Return the qualifier of the `cdk bootstrap` that a template needs."""
    default = str(template.get("Parameters", {}).get("BootstrapVersion", {}).get("Default", ""))
    found = _QUALIFIER.fullmatch(default)
    return _DEFAULT_QUALIFIER if found is None else found[1]


class StackRights:
    """The rights that the resources of one stack need.

    Args:
        name: the stack's name.
        template: the stack's synthesised template.
        place: the partition, region and account of the stack.
    """

    def __init__(self, name: str, template: Template, place: Place) -> None:
        self.name = name
        self.template = template
        self.place = place
        self._resources: dict[str, Any] = template.get("Resources", {})

    def of_type(self, resource_type: str) -> dict[str, dict[str, Any]]:
        """Return the properties of the resources of a type, by logical id."""
        return {
            logical_id: resource.get("Properties", {})
            for logical_id, resource in self._resources.items()
            if resource["Type"] == resource_type
        }

    def names_of_type(self, resource_type: str) -> tuple[str, ...]:
        """Return the names of the resources of a type, or patterns for generated names."""
        return tuple(name for logical_id in self.of_type(resource_type) for name in self.names(logical_id))

    def names(self, logical_id: str) -> tuple[str, ...]:
        """Return the name of a resource, or patterns of the name that CloudFormation generates.

        SageMaker writes names in ARNs in lower case (aws/amazon-sagemaker-examples#293). No source says if IAM compares
        a policy with the name in the template or with the lower-case name, so both are returned.
        """
        resource = self._resources[logical_id]
        kind = resource["Type"]
        rights = _known(kind, logical_id)
        stated = _at(resource.get("Properties", {}), rights.name)
        if stated is not None:
            names = [self.text(stated)]
        else:
            short = f"{self.name}-*" if len(self.name) <= _CERTAIN_CHARACTERS else f"{self.name[:_CERTAIN_CHARACTERS]}*"
            names = [short.lower() if rights.lower else short, *([f"{logical_id}-*"] if rights.plain_id else [])]
        if kind.startswith("AWS::SageMaker::"):
            names += [name.lower() for name in names]
        return tuple(dict.fromkeys(names))

    def named_by(self, value: Any) -> tuple[str, ...]:
        """Return the names of the resource that a property's value refers to, or the value itself as text."""
        if isinstance(value, list):
            return tuple(name for one in value for name in self.named_by(one))
        if isinstance(value, dict) and len(value) == 1:
            target = value.get("Ref") or next(iter(value.get("Fn::GetAtt", [])), None)
            if target in self._resources:
                return self.names(target)
        return (self.text(value),)

    def text(self, value: Any) -> str:
        """Return a value of the template as text; a part that only a deploy can know becomes a wildcard."""
        if not isinstance(value, dict):
            return str(value)
        match next(iter(value.items())):
            case "Ref", str(name):
                return self._pseudo().get(name, "*")
            case "Fn::Join", [separator, list(parts)]:
                return str(separator).join(map(self.text, parts))
            case "Fn::Sub", str(pattern):
                return re.sub(r"\$\{([^}]+)\}", lambda found: self._pseudo().get(found[1], "*"), pattern)
        return "*"

    def _pseudo(self) -> Mapping[str, str]:
        place = self.place
        return {"AWS::Partition": place.partition, "AWS::Region": place.region, "AWS::AccountId": place.account}

    def deployment(self) -> Iterator[_Permission]:
        """Yield the permissions that CloudFormation's role needs for the stack's resources.

        Raises:
            StackError: the template has a resource type whose rights are not known.
        """
        for logical_id, resource in self._resources.items():
            properties = resource.get("Properties", {})
            for grant in _known(resource["Type"], logical_id).grants:
                if grant.when is None or _at(properties, grant.when) is not None:
                    yield from self._permissions(grant, logical_id, properties)

    def cleanup(self) -> Iterator[_Permission]:
        """Yield the permissions that `cohost cleanup` needs to remove the resources that the stack left."""
        for logical_id, resource in self._resources.items():
            for grant in _known(resource["Type"], logical_id).cleanup:
                yield from self._permissions(grant, logical_id, resource.get("Properties", {}))

    def _permissions(self, grant: Grant, logical_id: str, properties: Mapping[str, Any]) -> Iterator[_Permission]:
        names = self.names(logical_id) if grant.of is None else self.named_by(_at(properties, grant.of))
        yield from _permissions(grant, {**self.place.values(), "name": names})


@dataclass(frozen=True)
class _Permission:
    action: str
    resource: str
    condition: str


def _known(resource_type: str, logical_id: str) -> Any:
    rights = rights_of(resource_type)
    if rights is None:
        raise StackError(
            "rights-unknown",
            f"resource {logical_id}",
            f"has the type {resource_type}, and the rights for that type are not known",
            allowed="the types in cohost/deploy/rights/resource_types.py",
            fix="add the type to that table, with the actions of its resource schema",
        )
    return rights


def _at(properties: Mapping[str, Any], path: str | None) -> Any:
    value: Any = properties
    for part in [] if path is None else path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return None if path is None else value


def _permissions(grant: Grant, values: Values) -> Iterator[_Permission]:
    condition = json.dumps(grant.condition, sort_keys=True)
    for pattern in grant.on:
        for resource in expand(pattern, values):
            for filled in _conditions(condition, values):
                yield from (_Permission(action, resource, filled) for action in grant.actions.split())


def _conditions(condition: str, values: Values) -> list[str]:
    # The braces of the JSON are no placeholders, so the only one that conditions have is replaced by hand.
    if "{prefix}" not in condition:
        return [condition]
    return [condition.replace("{prefix}", prefix) for prefix in values.get("prefix", ())]


def expand(pattern: str, values: Values) -> Iterator[str]:
    """Fill in a pattern with each combination of its placeholders' values; a value that is an ARN is yielded alone.

    If a placeholder has no value, nothing is yielded.
    """
    names = [name for _, name, _, _ in string.Formatter().parse(pattern) if name]
    for chosen in itertools.product(*(values.get(name, ()) for name in names)):
        arn = next((one for one in chosen if one.startswith("arn:")), None)
        yield pattern.format(**dict(zip(names, chosen, strict=True))) if arn is None else arn


def cloudformation_policies(stacks: Iterable[StackRights]) -> list[Document]:
    """Return the policies for `cdk bootstrap --cloudformation-execution-policies`; one policy, if it is not too long.

    Raises:
        StackError: a template has a resource type whose rights are not known.
    """
    return _documents(permission for stack in stacks for permission in stack.deployment())


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The stacks of a catalog, and the values that the IAM policies of their caller need.

    Args:
        stacks: the stack of the endpoint and the stacks that it depends on.
        values: the values of the placeholders in COMMANDS, beside those of `Place`.
    """

    stacks: Sequence[StackRights]
    values: Values

    def policies(self, commands: Iterable[str]) -> list[Document]:
        """Return the policies of somebody who runs the given commands; one policy, if it is not too long for IAM."""
        return _documents(permission for command in commands for permission in self._needed(command))

    def _needed(self, command: str) -> Iterator[_Permission]:
        values = {**self.stacks[0].place.values(), **self.values}
        for grant in COMMANDS[command]:
            yield from _permissions(grant, values)
        if command == "cleanup":
            for stack in self.stacks:
                yield from stack.cleanup()


def _documents(permissions: Iterable[_Permission]) -> list[Document]:
    """Return policies with few statements: one statement has all actions with the same resources and conditions."""
    on: dict[tuple[str, str], dict[str, None]] = {}
    for one in permissions:
        on.setdefault((one.action, one.condition), {})[one.resource] = None
    statements: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (action, condition), found in on.items():
        # A statement for every resource makes those for single ones superfluous.
        resources = ("*",) if "*" in found else tuple(sorted(found))
        statements.setdefault((resources, condition), []).append(action)
    return _packed([_statement(actions, *key) for key, actions in statements.items()])


def _statement(actions: list[str], resources: tuple[str, ...], condition: str) -> Document:
    stated = json.loads(condition)
    return {
        "Effect": "Allow",
        "Action": sorted(actions),
        "Resource": resources[0] if len(resources) == 1 else list(resources),
        **({"Condition": stated} if stated else {}),
    }


def _packed(statements: list[Document]) -> list[Document]:
    documents: list[Document] = []
    for statement in statements:
        if documents and size(_document([*documents[-1]["Statement"], statement])) <= POLICY_LIMIT:
            documents[-1]["Statement"].append(statement)
        else:
            documents.append(_document([statement]))
    return documents


def _document(statements: list[Document]) -> Document:
    return {"Version": "2012-10-17", "Statement": statements}


def size(document: Document) -> int:
    """Return the number of a policy's characters as IAM counts them: without white space."""
    return len(json.dumps(document, separators=(",", ":")))
