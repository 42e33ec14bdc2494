"""The CloudFormation operations that change stacks and change sets, and the conversion of their requests to targets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from local_aws.cloudformation.change_sets import PlannedValues, plan
from local_aws.cloudformation.checks import check_active_references, check_capabilities, check_rules, check_template
from local_aws.cloudformation.context import DeployedValues, outputs_of
from local_aws.cloudformation.errors import (
    CloudFormationError,
    ValidationError,
    change_set_not_found,
    stack_not_found,
    unsupported,
)
from local_aws.cloudformation.resources.base import change_set_arn, stack_arn
from local_aws.cloudformation.state import REVIEW, ChangeSet, Stack, Target, now
from local_aws.cloudformation.templates.parameters import resolve_parameters
from local_aws.cloudformation.templates.template import parse_template, template_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.cloudformation.context import Context
    from local_aws.cloudformation.engine import Engine


def find_stack(context: Context, name: str) -> Stack | None:
    """Return the stack that `name` identifies: by id any stack, also a deleted one; by name only an existing stack."""
    for stack in reversed(context.stacks):
        if stack.arn == name or (stack.name == name and stack.deleted is None):
            return stack
    return None


def get_stack(context: Context, name: str) -> Stack:
    """Return the stack that `find_stack` finds; raise ValidationError if it finds none."""
    stack = find_stack(context, name)
    if stack is None:
        raise stack_not_found(name)
    return stack


def get_change_set(context: Context, request: Mapping[str, Any]) -> tuple[Stack, ChangeSet]:
    """Return a change set and its stack; a request names the change set by id, or by name and stack.

    Raises:
        CloudFormationError: the change set does not exist (`ChangeSetNotFound`).
    """
    name = str(request["ChangeSetName"])
    stacks = [get_stack(context, str(request["StackName"]))] if request.get("StackName") else context.stacks
    for stack in stacks:
        for change_set in stack.change_sets.values():
            if name in {change_set.arn, change_set.name}:
                return stack, change_set
    raise change_set_not_found(name)


def make_target(context: Context, stack: Stack, request: Mapping[str, Any]) -> Target:
    """Build the target (template, parameters and tags) that a request describes, and check it without deploying.

    Raises:
        CloudFormationError: the template or a parameter is invalid, a rule is broken, or a capability is missing.
    """
    previous = stack.target
    if request.get("UsePreviousTemplate"):
        if previous is None:
            raise ValidationError("UsePreviousTemplate: the stack has no template yet")
        body = previous.template.body
    else:
        body = template_body(request, context.s3)
    template = parse_template(body)
    check_template(template, context.resource_types)
    check_capabilities(template, request.get("Capabilities", []))
    before = previous.parameters if previous is not None else {}
    parameters = resolve_parameters(template, request.get("Parameters", []), before, context.lookup_ssm)
    tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
    if "Tags" not in request and previous is not None:
        tags = dict(previous.tags)
    target = Target(template=template, parameters=parameters, tags=tags)
    resolver = context.resolver(stack, target, DeployedValues(stack))
    check_rules(template, resolver)
    check_active_references(template, context.active(stack, target), resolver.conditions())
    context.graph(stack, target)
    _check_types(stack, target)
    return target


def _check_types(stack: Stack, target: Target) -> None:
    """Reject another type for an existing logical id; a resource of another type needs a new logical id."""
    changed = [
        name
        for name, definition in target.template.resources.items()
        if (resource := stack.resources.get(name)) is not None
        and resource.live is not None
        and resource.live.type != definition.type
    ]
    if changed:
        raise ValidationError(
            "Update of resource type is not permitted. The new template modifies resource type of the following "
            f"resources: [{', '.join(changed)}]"
        )


NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}")
OPTIONS: Final = ("Capabilities", "DisableRollback", "NotificationARNs", "RoleARN")
NO_UPDATES: Final = "No updates are to be performed."
NO_CHANGES: Final = (
    "The submitted information didn't contain changes. Submit different information to create a change set."
)
Answer = dict[str, Any]


def create_stack(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer CreateStack."""
    name = _checked_name(request)
    with engine.context.lock:
        existing = find_stack(engine.context, name)
        if existing is not None:
            raise CloudFormationError("AlreadyExistsException", f"Stack [{name}] already exists")
        stack = Stack(arn=stack_arn(engine.context.region, name), name=name, region=engine.context.region)
        target = make_target(engine.context, stack, request)
        _check_role(engine.context, request)
        engine.context.stacks.append(stack)
        stack.termination_protection = bool(request.get("EnableTerminationProtection"))
        _take_options(stack, request)
        on_failure = str(request.get("OnFailure") or ("DO_NOTHING" if _keeps_failures(request) else "ROLLBACK"))
        engine.create(stack, target, token=request.get("ClientRequestToken"), on_failure=on_failure)
    return {"StackId": stack.arn}


def update_stack(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer UpdateStack."""
    with engine.context.lock:
        stack = get_stack(engine.context, str(request["StackName"]))
        target = make_target(engine.context, stack, request)
        if not plan(engine.context, stack, target) and not outputs_differ(engine, stack, target):
            raise ValidationError(NO_UPDATES)
        _check_role(engine.context, request)
        _take_options(stack, request)
        engine.update(stack, target, token=request.get("ClientRequestToken"), disable_rollback=_keeps_failures(request))
    return {"StackId": stack.arn}


def delete_stack(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer DeleteStack; do nothing if the stack does not exist or is already being deleted."""
    stack = find_stack(engine.context, str(request["StackName"]))
    if stack is None or stack.deleted is not None or stack.status == "DELETE_IN_PROGRESS":
        return {}
    stack.change_sets.clear()
    if stack.status == REVIEW:
        stack.deleted = now()
        stack.set_status("DELETE_COMPLETE")
        return {}
    _check_role(engine.context, request)
    if "RoleARN" in request:
        stack.options["RoleARN"] = request["RoleARN"]
    retain = set(request.get("RetainResources", []))
    engine.delete(stack, token=request.get("ClientRequestToken"), retain=retain)
    return {}


def roll_back_stack(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer RollbackStack and ContinueUpdateRollback; a list of resources to skip is rejected."""
    if request.get("ResourcesToSkip"):
        raise unsupported("ResourcesToSkip")
    with engine.context.lock:
        stack = get_stack(engine.context, str(request["StackName"]))
        engine.roll_back(stack, token=request.get("ClientRequestToken"))
    return {"StackId": stack.arn}


def continue_update_rollback(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer ContinueUpdateRollback."""
    roll_back_stack(engine, request)
    return {}


def update_termination_protection(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer UpdateTerminationProtection."""
    stack = get_stack(engine.context, str(request["StackName"]))
    stack.termination_protection = bool(request["EnableTerminationProtection"])
    return {"StackId": stack.arn}


def create_change_set(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer CreateChangeSet; the changes are computed at once, so the first DescribeChangeSet already lists them."""
    # ImportExistingResources only permits an import (`cdk bootstrap` always sets it). Here an existing resource is not
    # imported, but fails the deploy.
    if request.get("ChangeSetType") == "IMPORT":
        raise unsupported("ChangeSetType IMPORT", allowed="CREATE, UPDATE")
    name, change_type = str(request["ChangeSetName"]), str(request.get("ChangeSetType", "UPDATE"))
    with engine.context.lock:
        stack = _stack_for_change_set(engine, request, change_type)
        if any(one.name == name for one in stack.change_sets.values()):
            raise CloudFormationError("AlreadyExistsException", f"ChangeSet {name} cannot be created, it exists")
        target = make_target(engine.context, stack, request)
        _check_role(engine.context, request)
        if stack not in engine.context.stacks:
            engine.context.stacks.append(stack)
            stack.set_status(REVIEW, "User Initiated")
        changes = plan(engine.context, stack, target)
        empty = not changes and not outputs_differ(engine, stack, target)
        change_set = ChangeSet(
            arn=change_set_arn(engine.context.region, name),
            name=name,
            type=change_type,
            target=target,
            request=request,
            status="FAILED" if empty else "CREATE_COMPLETE",
            execution_status="UNAVAILABLE" if empty else "AVAILABLE",
            reason=NO_CHANGES if empty else None,
            changes=changes,
        )
        stack.change_sets[change_set.arn] = change_set
    return {"Id": change_set.arn, "StackId": stack.arn}


def execute_change_set(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer ExecuteChangeSet; start the operation, and delete the stack's other change sets."""
    with engine.context.lock:
        stack, change_set = get_change_set(engine.context, request)
        if change_set.execution_status != "AVAILABLE":
            message = (
                f"ChangeSet [{change_set.arn}] cannot be executed in its current status of [{change_set.status}], "
                f"execution status [{change_set.execution_status}]"
            )
            raise CloudFormationError("InvalidChangeSetStatus", message)
        # DisableRollback is a parameter of ExecuteChangeSet; all other options come from CreateChangeSet.
        options = {**change_set.request, "DisableRollback": _keeps_failures(request)}
        token, keep = request.get("ClientRequestToken"), _keeps_failures(options)
        if stack.status == REVIEW:
            _take_options(stack, options)
            on_failure = str(change_set.request.get("OnStackFailure") or ("DO_NOTHING" if keep else "ROLLBACK"))
            engine.create(stack, change_set.target, token=token, on_failure=on_failure)
        else:
            engine.update(stack, change_set.target, token=token, disable_rollback=keep)
            _take_options(stack, options)
        change_set.execution_status = "EXECUTE_COMPLETE"
        stack.change_sets = {change_set.arn: change_set}
    return {}


def delete_change_set(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer DeleteChangeSet; a change set that does not exist is not an error, as in AWS."""
    with engine.context.lock:
        try:
            stack, change_set = get_change_set(engine.context, request)
        except CloudFormationError as error:
            if error.code != "ChangeSetNotFound":
                raise
            return {}
        del stack.change_sets[change_set.arn]
    return {}


def outputs_differ(engine: Engine, stack: Stack, target: Target) -> bool:
    """Return True if, as far as is known before the deploy, the target's outputs differ from the stack's."""
    context = engine.context
    if stack.status == REVIEW:
        return True
    values = PlannedValues(context, stack)
    planned = outputs_of(target, context.resolver(stack, target, values))
    current = stack.outputs
    if stack.target is not None and not stack.journal:
        # The present outputs are resolved again for the comparison, since a description may have changed too.
        current = outputs_of(stack.target, context.resolver(stack, stack.target, DeployedValues(stack)))
    return planned != current


def _stack_for_change_set(engine: Engine, request: Mapping[str, Any], change_type: str) -> Stack:
    given = str(request["StackName"])
    stack = find_stack(engine.context, given)
    if change_type == "UPDATE":
        if stack is None or stack.deleted is not None:
            raise ValidationError(f"Stack [{given}] does not exist")
        return stack
    if stack is None or stack.deleted is not None:
        name = _checked_name(request)
        return Stack(arn=stack_arn(engine.context.region, name), name=name, region=engine.context.region)
    if stack.status != REVIEW:
        message = f"Stack [{given}] already exists and cannot be created again with the changeSet"
        raise CloudFormationError("AlreadyExistsException", f"{message} [{request['ChangeSetName']}].")
    return stack


def _checked_name(request: Mapping[str, Any]) -> str:
    name = str(request["StackName"])
    if NAME.fullmatch(name) is None:
        raise ValidationError(
            f"1 validation error detected: Value '{name}' at 'stackName' failed to satisfy constraint: "
            "Member must satisfy regular expression pattern: [a-zA-Z][-a-zA-Z0-9]*"
        )
    return name


def _keeps_failures(request: Mapping[str, Any]) -> bool:
    config = request.get("DeploymentConfig") or {}
    return bool(request.get("DisableRollback") or config.get("DisableRollback"))


def _check_role(context: Context, request: Mapping[str, Any]) -> None:
    if context.rights is not None:
        context.rights.check_role(request.get("RoleARN"))


def _take_options(stack: Stack, request: Mapping[str, Any]) -> None:
    stack.options.update({name: request[name] for name in OPTIONS if name in request})
