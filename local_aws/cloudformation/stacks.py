"""Finding stacks and change sets, and making targets out of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_aws.cloudformation.checks import check_capabilities, check_rules, check_template
from local_aws.cloudformation.context import DeployedValues
from local_aws.cloudformation.errors import ValidationError, change_set_not_found, stack_not_found
from local_aws.cloudformation.parameters import resolve_parameters
from local_aws.cloudformation.stack import Target
from local_aws.cloudformation.template import parse_template
from local_aws.cloudformation.template_source import template_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.cloudformation.context import Context
    from local_aws.cloudformation.stack import ChangeSet, Stack


def find_stack(context: Context, name: str) -> Stack | None:
    """A stack by its id, also when it is deleted, or by its name when it is not."""
    for stack in reversed(context.stacks):
        if stack.arn == name or (stack.name == name and stack.deleted is None):
            return stack
    return None


def get_stack(context: Context, name: str) -> Stack:
    """`find_stack`, where there must be one; raises ValidationError."""
    stack = find_stack(context, name)
    if stack is None:
        raise stack_not_found(name)
    return stack


def get_change_set(context: Context, request: Mapping[str, Any]) -> tuple[Stack, ChangeSet]:
    """The change set that a request names by its id, or by its name and its stack.

    Raises:
        CloudFormationError: there is none (`ChangeSetNotFound`).
    """
    name = str(request["ChangeSetName"])
    stacks = [get_stack(context, str(request["StackName"]))] if request.get("StackName") else context.stacks
    for stack in stacks:
        for change_set in stack.change_sets.values():
            if name in {change_set.arn, change_set.name}:
                return stack, change_set
    raise change_set_not_found(name)


def make_target(context: Context, stack: Stack, request: Mapping[str, Any]) -> Target:
    """What a request wants a stack to become, checked as far as that goes without deploying.

    Raises:
        CloudFormationError: the template, a parameter or a rule does not allow it.
    """
    previous = stack.target
    if request.get("UsePreviousTemplate"):
        if previous is None:
            raise ValidationError("UsePreviousTemplate: the stack has no template yet")
        body = previous.template.body
    else:
        body = template_body(request, context.clients, context.region)
    template = parse_template(body)
    check_template(template, context.registry)
    check_capabilities(template, request.get("Capabilities", []))
    before = previous.parameters if previous is not None else {}
    parameters = resolve_parameters(template, request.get("Parameters", []), before, context.lookup_ssm)
    tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
    if "Tags" not in request and previous is not None:
        tags = dict(previous.tags)
    target = Target(template=template, parameters=parameters, tags=tags)
    resolver = context.resolver(stack, target, DeployedValues(stack))
    check_rules(template, resolver)
    context.graph(stack, target)
    return target
