"""The state and helpers that all stack operations of one region share: stacks, resource types, outputs and exports."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from local_aws.cloudformation.errors import ValidationError
from local_aws.cloudformation.graph import Graph, dependencies
from local_aws.cloudformation.resources.handler_rights import caller_client
from local_aws.cloudformation.templates.intrinsics import NO_VALUE, Resolver, as_text
from local_aws.kit.account import ACCOUNT_ID, PARTITION

if TYPE_CHECKING:
    from local_aws.cloudformation.resources import ResourceTypes
    from local_aws.cloudformation.resources.handler_rights import HandlerRights
    from local_aws.cloudformation.state import Live, Stack, Target
    from local_aws.cloudformation.templates.intrinsics import Values
    from local_aws.kit.clients import Clients


class DeployedValues:
    """The `Ref` and `Fn::GetAtt` values of the resources that exist in a stack at present."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    def ref(self, logical_id: str) -> str:
        """Return the physical id of a resource."""
        return self._live(logical_id).physical_id

    def attribute(self, logical_id: str, name: str) -> Any:  # an attribute has any type
        """Return an attribute of a resource, as its last create or update returned it."""
        live = self._live(logical_id)
        if name not in live.attributes:
            raise missing_attribute(live.type, logical_id, name)
        return live.attributes[name]

    def _live(self, logical_id: str) -> Live:
        resource = self._stack.resources.get(logical_id)
        if resource is None or resource.live is None:
            raise ValidationError(f"Unresolved resource dependency [{logical_id}]: it does not exist")
        return resource.live


def missing_attribute(type_name: str, logical_id: str, name: str) -> ValidationError:
    """Make the error of a `Fn::GetAtt` for an attribute that the resource does not have."""
    if type_name.startswith("AWS::") and type_name != "AWS::CloudFormation::CustomResource":
        return ValidationError(
            f"Template error: resource {logical_id} does not support attribute type {name} in Fn::GetAtt"
        )
    return ValidationError(f"CustomResource attribute error: Vendor response doesn't contain {name} for {logical_id}")


class Context:
    """The stacks of one region, with the resource types and clients that their operations use.

    Args:
        region: the region's name.
        resource_types: the resource types that templates may contain.
        clients: boto3 clients that call the emulator.
        rights: the rights with which resources are changed; None if nobody's rights limit the changes.
    """

    def __init__(
        self, *, region: str, resource_types: ResourceTypes, clients: Clients, rights: HandlerRights | None = None
    ) -> None:
        self.rights = rights
        self.region = region
        self.resource_types = resource_types
        self.clients = clients
        self.stacks: list[Stack] = []
        self.lock = threading.RLock()

    def s3(self) -> Any:  # boto3's client
        """Return an S3 client whose calls are made with the caller's permissions."""
        return caller_client(self.clients, "s3", self.region)

    def lookup_ssm(self, name: str) -> str:
        """Return the value of an SSM parameter; `name` may end in `:VERSION`.

        Raises:
            ValidationError: the parameter cannot be read.
        """
        try:
            answer = caller_client(self.clients, "ssm", self.region).get_parameters(Names=[name])
            return str(answer["Parameters"][0]["Value"])
        except (ClientError, IndexError) as error:
            raise ValidationError(
                f"Unable to fetch parameters [{name}] from parameter store for this account. ({error})"
            ) from None

    def exports(self) -> dict[str, tuple[Stack, str]]:
        """Return the region's exports: for each export name, the exporting stack and the value."""
        return {
            name: (stack, value)
            for stack in list(self.stacks)
            if stack.deleted is None
            for name, value in stack.exports.items()
        }

    def importers(self, export: str) -> list[str]:
        """Return the names of the stacks that import an export."""
        return [stack.name for stack in list(self.stacks) if stack.deleted is None and export in stack.imports]

    def resolver(self, stack: Stack, target: Target, values: Values, *, imports: set[str] | None = None) -> Resolver:
        """Make a resolver of the target's template for a stack; it adds each export name that it reads to `imports`."""

        def import_value(name: str) -> str:
            exports = self.exports()
            if name not in exports:
                raise ValidationError(f"No export named {name} found.")
            if imports is not None:
                imports.add(name)
            return exports[name][1]

        names = {
            **{key: parameter.value for key, parameter in target.parameters.items()},
            "AWS::AccountId": ACCOUNT_ID,
            "AWS::NotificationARNs": list(stack.options.get("NotificationARNs", [])),
            "AWS::Partition": PARTITION,
            "AWS::Region": self.region,
            "AWS::StackId": stack.arn,
            "AWS::StackName": stack.name,
            "AWS::URLSuffix": "amazonaws.com",
        }
        return Resolver(
            target.template, names=names, values=values, lookup_ssm=self.lookup_ssm, import_value=import_value
        )

    def active(self, stack: Stack, target: Target) -> list[str]:
        """Return the logical ids of the target's resources whose condition is true or absent."""
        resolver = self.resolver(stack, target, DeployedValues(stack))
        return [
            name
            for name, definition in target.template.resources.items()
            if definition.condition is None or resolver.condition(definition.condition)
        ]

    def graph(self, stack: Stack, target: Target) -> Graph:
        """Return the dependency graph of the target's resources whose condition is true or absent."""
        resolver = self.resolver(stack, target, DeployedValues(stack))
        return dependencies(target.template, self.active(stack, target), resolver.conditions())


def outputs_of(target: Target, resolver: Resolver) -> list[dict[str, str]]:
    """Return the template's outputs whose condition is true or absent, in the form of DescribeStacks."""
    outputs = []
    for key, spec in target.template.section("Outputs").items():
        condition = spec.get("Condition")
        if condition is not None and not resolver.condition(condition):
            continue
        value = resolver.resolve(spec["Value"])
        if value is NO_VALUE:
            raise ValidationError(f"Template format error: Output {key} has no value")
        output = {"OutputKey": key, "OutputValue": as_text(value)}
        if "Description" in spec:
            output["Description"] = str(spec["Description"])
        if "Export" in spec:
            output["ExportName"] = resolver.text(spec["Export"]["Name"])
        outputs.append(output)
    return outputs


def check_exports(context: Context, stack: Stack, outputs: list[dict[str, str]]) -> None:
    """Reject an export name that another stack exports, and a change of an export that another stack imports.

    Raises:
        ValidationError: an export is taken or in use; the text names the export and the other stacks.
    """
    wanted = {output["ExportName"]: output["OutputValue"] for output in outputs if "ExportName" in output}
    for name, (owner, _) in context.exports().items():
        if name in wanted and owner is not stack:
            raise ValidationError(f"Export with name {name} is already exported by stack {owner.name}")
    for name, value in stack.exports.items():
        if wanted.get(name) != value:
            reject_if_used(context, name, "updated")


def reject_if_used(context: Context, export: str, verb: str) -> None:
    """Reject the removal or change of an export that other stacks import.

    Raises:
        ValidationError: the export is in use; the text names the importing stacks.
    """
    users = context.importers(export)
    if users:
        raise ValidationError(f"Export {export} cannot be {verb} as it is in use by {', '.join(users)}")
