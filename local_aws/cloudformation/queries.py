"""The CloudFormation operations that only read; they convert the engine's state to CloudFormation's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from local_aws.cloudformation.change_sets import described
from local_aws.cloudformation.checks import check_template, needed_capabilities
from local_aws.cloudformation.errors import ValidationError
from local_aws.cloudformation.operations import find_stack, get_change_set, get_stack
from local_aws.cloudformation.state import REVIEW
from local_aws.cloudformation.templates.template import Template, parse_template, template_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.cloudformation.engine import Engine
    from local_aws.cloudformation.state import ChangeSet, Event, Stack, StackResource


EVENTS_PER_PAGE: Final = 100


def stack_view(stack: Stack) -> dict[str, Any]:
    """Build an entry of DescribeStacks."""
    target = stack.target
    view: dict[str, Any] = {
        "StackId": stack.arn,
        "StackName": stack.name,
        "CreationTime": stack.created,
        "LastUpdatedTime": stack.updated,
        "DeletionTime": stack.deleted,
        "StackStatus": stack.status,
        "StackStatusReason": stack.reason,
        "DisableRollback": bool(stack.options.get("DisableRollback", False)),
        "EnableTerminationProtection": stack.termination_protection,
        "NotificationARNs": list(stack.options.get("NotificationARNs", [])),
        "Capabilities": list(stack.options.get("Capabilities", [])),
        "RoleARN": stack.options.get("RoleARN"),
        "RollbackConfiguration": {},
        "DriftInformation": {"StackDriftStatus": "NOT_CHECKED"},
        "Outputs": list(stack.outputs),
        "Parameters": [],
        "Tags": [],
    }
    if target is not None and stack.status != REVIEW:
        view["Description"] = target.template.document.get("Description")
        view["Parameters"] = [parameter.described() for parameter in target.parameters.values()]
        view["Tags"] = [{"Key": key, "Value": value} for key, value in target.tags.items()]
    return view


def stack_summary(stack: Stack) -> dict[str, Any]:
    """Build an entry of ListStacks."""
    view = stack_view(stack)
    names = ("StackId", "StackName", "CreationTime", "LastUpdatedTime", "DeletionTime", "StackStatus")
    summary = {name: view[name] for name in (*names, "StackStatusReason", "DriftInformation")}
    return {**summary, "TemplateDescription": view.get("Description")}


def resource_summary(resource: StackResource) -> dict[str, Any]:
    """Build an entry of ListStackResources."""
    return {
        "LogicalResourceId": resource.definition.logical_id,
        "PhysicalResourceId": resource.physical_id,
        "ResourceType": resource.definition.type,
        "LastUpdatedTimestamp": resource.updated,
        "ResourceStatus": resource.status,
        "ResourceStatusReason": resource.reason,
        "DriftInformation": {"StackResourceDriftStatus": "NOT_CHECKED"},
    }


def resource_view(stack: Stack, resource: StackResource) -> dict[str, Any]:
    """Build an entry of DescribeStackResources."""
    view = resource_summary(resource)
    view["Timestamp"] = view.pop("LastUpdatedTimestamp")
    return {"StackName": stack.name, "StackId": stack.arn, **view}


def event_page(stack: Stack, token: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """Return one page of a stack's events, newest first, and the token of the next page.

    The token counts the events that are older than the page, so new events between two calls do not shift the next
    page.
    """
    end = len(stack.events) if token is None else int(token)
    start = max(0, end - EVENTS_PER_PAGE)
    page = [_event_view(stack, event) for event in reversed(stack.events[start:end])]
    return page, str(start) if start > 0 else None


def _event_view(stack: Stack, event: Event) -> dict[str, Any]:
    return {
        "StackId": stack.arn,
        "EventId": event.event_id,
        "StackName": stack.name,
        "LogicalResourceId": event.logical_id,
        "PhysicalResourceId": event.physical_id,
        "ResourceType": event.type,
        "Timestamp": event.timestamp,
        "ResourceStatus": event.status,
        "ResourceStatusReason": event.reason,
        "ResourceProperties": event.properties,
        "ClientRequestToken": event.token,
    }


def change_set_summary(stack: Stack, change_set: ChangeSet) -> dict[str, Any]:
    """Build an entry of ListChangeSets."""
    return {
        "StackId": stack.arn,
        "StackName": stack.name,
        "ChangeSetId": change_set.arn,
        "ChangeSetName": change_set.name,
        "ExecutionStatus": change_set.execution_status,
        "Status": change_set.status,
        "StatusReason": change_set.reason,
        "CreationTime": change_set.created,
        "Description": change_set.request.get("Description"),
    }


def change_set_view(stack: Stack, change_set: ChangeSet, *, include_values: bool) -> dict[str, Any]:
    """Build the answer of DescribeChangeSet."""
    request, target = change_set.request, change_set.target
    return {
        **change_set_summary(stack, change_set),
        "Parameters": [parameter.described() for parameter in target.parameters.values()],
        "NotificationARNs": list(request.get("NotificationARNs", [])),
        "RollbackConfiguration": {},
        "Capabilities": list(request.get("Capabilities", [])),
        "Tags": [{"Key": key, "Value": value} for key, value in target.tags.items()],
        "Changes": [described(change, include_values=include_values) for change in change_set.changes],
        "IncludeNestedStacks": bool(request.get("IncludeNestedStacks", False)),
        "ImportExistingResources": False,
    }


Answer = dict[str, Any]


def describe_stacks(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer DescribeStacks."""
    name = request.get("StackName")
    if name:
        return {"Stacks": [stack_view(get_stack(engine.context, str(name)))]}
    return {"Stacks": [stack_view(one) for one in reversed(engine.context.stacks) if one.deleted is None]}


def list_stacks(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer ListStacks; the list includes deleted stacks."""
    wanted = set(request.get("StackStatusFilter", []))
    stacks = [one for one in reversed(engine.context.stacks) if not wanted or one.status in wanted]
    return {"StackSummaries": [stack_summary(one) for one in stacks]}


def describe_stack_events(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer DescribeStackEvents, newest first."""
    name = str(request.get("StackName", ""))
    stack = find_stack(engine.context, name)
    if stack is None:
        raise ValidationError(f"Stack [{name}] does not exist")
    events, token = event_page(stack, request.get("NextToken"))
    return {"StackEvents": events, "NextToken": token}


def list_stack_resources(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer ListStackResources; for a deleted stack list its last resources, retained ones as DELETE_SKIPPED."""
    stack = get_stack(engine.context, str(request["StackName"]))
    resources = [*stack.resources.values(), *(stack.ended.values() if stack.deleted is not None else ())]
    return {"StackResourceSummaries": [resource_summary(one) for one in resources]}


def describe_stack_resources(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer DescribeStackResources; the request names the stack, or the physical id of a resource in the stack."""
    physical = request.get("PhysicalResourceId")
    if request.get("StackName"):
        stack = get_stack(engine.context, str(request["StackName"]))
    else:
        owners = [s for s in engine.context.stacks if any(r.physical_id == physical for r in s.resources.values())]
        if not owners:
            raise ValidationError(f"Stack for {physical} does not exist")
        stack = owners[0]
    logical = request.get("LogicalResourceId")
    chosen = [one for one in list(stack.resources.values()) if logical in {None, one.definition.logical_id}]
    return {"StackResources": [resource_view(stack, one) for one in chosen]}


def describe_stack_resource(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer DescribeStackResource."""
    stack = get_stack(engine.context, str(request["StackName"]))
    name = str(request["LogicalResourceId"])
    resource = stack.resources.get(name)
    if resource is None:
        raise ValidationError(f"Resource {name} does not exist for stack {stack.name}")
    detail = resource_summary(resource) | {"StackName": stack.name, "StackId": stack.arn}
    return {"StackResourceDetail": detail}


def get_template(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer GetTemplate for a stack or change set; `Original` and `Processed` are the same without transforms."""
    if request.get("ChangeSetName"):
        target = get_change_set(engine.context, request)[1].target
        return {"TemplateBody": target.template.body, "StagesAvailable": ["Original", "Processed"]}
    stack = get_stack(engine.context, str(request["StackName"]))
    body = stack.target.template.body if stack.target is not None else ""
    return {"TemplateBody": body, "StagesAvailable": ["Original", "Processed"]}


def get_template_summary(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer GetTemplateSummary for a template in the request or for the template of a stack."""
    template = _template(engine, request)
    parameters = []
    for key, spec in template.section("Parameters").items():
        entry = {"ParameterKey": key, "ParameterType": spec.get("Type"), "Description": spec.get("Description")}
        default = {"DefaultValue": str(spec["Default"])} if "Default" in spec else {}
        parameters.append({**entry, **default, "NoEcho": str(spec.get("NoEcho", "false")).lower() == "true"})
    return {
        "Parameters": parameters,
        "Description": template.document.get("Description"),
        "Capabilities": needed_capabilities(template),
        "ResourceTypes": sorted({definition.type for definition in template.resources.values()}),
        "Version": template.document.get("AWSTemplateFormatVersion"),
    }


def validate_template(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer ValidateTemplate; make the same checks that a deploy makes before it creates the first resource."""
    template = _template(engine, request)
    check_template(template, engine.context.resource_types)
    summary = get_template_summary(engine, {"TemplateBody": template.body})
    for parameter in summary["Parameters"]:
        parameter.pop("ParameterType")
    return {name: summary[name] for name in ("Parameters", "Description", "Capabilities")}


def _template(engine: Engine, request: Mapping[str, Any]) -> Template:
    if request.get("StackName"):
        stack = get_stack(engine.context, str(request["StackName"]))
        if stack.target is None:
            raise ValidationError(f"Stack {stack.name} has no template yet")
        return stack.target.template
    return parse_template(template_body(request, engine.context.s3))


def describe_change_set(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer DescribeChangeSet."""
    stack, change_set = get_change_set(engine.context, request)
    return change_set_view(stack, change_set, include_values=bool(request.get("IncludePropertyValues")))


def list_change_sets(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer ListChangeSets."""
    stack = get_stack(engine.context, str(request["StackName"]))
    return {"Summaries": [change_set_summary(stack, one) for one in stack.change_sets.values()]}


def list_exports(engine: Engine, request: Mapping[str, Any]) -> Answer:  # noqa: ARG001 - all actions look alike
    """Answer ListExports."""
    return {
        "Exports": [
            {"ExportingStackId": stack.arn, "Name": name, "Value": value}
            for name, (stack, value) in sorted(engine.context.exports().items())
        ]
    }


def list_imports(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """Answer ListImports."""
    name = str(request["ExportName"])
    importers = engine.context.importers(name)
    if not importers:
        raise ValidationError(f"Export '{name}' is not imported by any stack.")
    return {"Imports": importers}


def list_hook_results(engine: Engine, request: Mapping[str, Any]) -> Answer:  # noqa: ARG001 - as `list_exports`
    """Answer ListHookResults, which the cdk CLI calls after a failure, with an empty list: hooks are not emulated."""
    return {"HookResults": []}
