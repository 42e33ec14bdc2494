"""Outputs and exports of a stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_aws.cloudformation.errors import ValidationError
from local_aws.cloudformation.intrinsics import NO_VALUE, as_text

if TYPE_CHECKING:
    from local_aws.cloudformation.context import Context
    from local_aws.cloudformation.intrinsics import Resolver
    from local_aws.cloudformation.stack import Stack, Target


def outputs_of(target: Target, resolver: Resolver) -> list[dict[str, str]]:
    """The outputs whose condition holds, in the form of DescribeStacks."""
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
    """Refuse an export that another stack has, and a change of one that another stack uses.

    Raises:
        ValidationError: names the export and the stack.
    """
    wanted = {output["ExportName"]: output["OutputValue"] for output in outputs if "ExportName" in output}
    for name, (owner, _) in context.exports().items():
        if name in wanted and owner is not stack:
            raise ValidationError(f"Export with name {name} is already exported by stack {owner.name}")
    for name, value in stack.exports.items():
        if wanted.get(name) != value:
            refuse_if_used(context, name, "updated")


def refuse_if_used(context: Context, export: str, verb: str) -> None:
    """Refuse to take away an export in use.

    Raises:
        ValidationError: names the stacks that use it.
    """
    users = context.importers(export)
    if users:
        raise ValidationError(f"Export {export} cannot be {verb} as it is in use by {', '.join(users)}")
