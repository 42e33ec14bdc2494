"""The actions that only look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_aws.cloudformation import describe
from local_aws.cloudformation.checks import check_template, needed_capabilities
from local_aws.cloudformation.errors import ValidationError
from local_aws.cloudformation.stacks import find_stack, get_change_set, get_stack
from local_aws.cloudformation.template import Template, parse_template
from local_aws.cloudformation.template_source import template_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.cloudformation.engine import Engine

Answer = dict[str, Any]


def describe_stacks(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """DescribeStacks."""
    name = request.get("StackName")
    if name:
        return {"Stacks": [describe.stack_view(get_stack(engine.context, str(name)))]}
    return {"Stacks": [describe.stack_view(one) for one in reversed(engine.context.stacks) if one.deleted is None]}


def list_stacks(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """ListStacks, deleted ones included."""
    wanted = set(request.get("StackStatusFilter", []))
    stacks = [one for one in reversed(engine.context.stacks) if not wanted or one.status in wanted]
    return {"StackSummaries": [describe.stack_summary(one) for one in stacks]}


def describe_stack_events(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """DescribeStackEvents, newest first."""
    name = str(request.get("StackName", ""))
    stack = find_stack(engine.context, name)
    if stack is None:
        raise ValidationError(f"Stack [{name}] does not exist")
    events, token = describe.event_page(stack, request.get("NextToken"))
    return {"StackEvents": events, "NextToken": token}


def list_stack_resources(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """ListStackResources; of a deleted stack, what it had, with what it left marked DELETE_SKIPPED."""
    stack = get_stack(engine.context, str(request["StackName"]))
    resources = [*stack.resources.values(), *(stack.ended.values() if stack.deleted is not None else ())]
    return {"StackResourceSummaries": [describe.resource_summary(one) for one in resources]}


def describe_stack_resources(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """DescribeStackResources, by stack or by the physical id of one of its resources."""
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
    return {"StackResources": [describe.resource_view(stack, one) for one in chosen]}


def describe_stack_resource(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """DescribeStackResource."""
    stack = get_stack(engine.context, str(request["StackName"]))
    name = str(request["LogicalResourceId"])
    resource = stack.resources.get(name)
    if resource is None:
        raise ValidationError(f"Resource {name} does not exist for stack {stack.name}")
    detail = describe.resource_summary(resource) | {"StackName": stack.name, "StackId": stack.arn}
    return {"StackResourceDetail": detail}


def get_template(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """GetTemplate of a stack or of a change set; there are no transforms, so both stages are one."""
    if request.get("ChangeSetName"):
        target = get_change_set(engine.context, request)[1].target
        return {"TemplateBody": target.template.body, "StagesAvailable": ["Original", "Processed"]}
    stack = get_stack(engine.context, str(request["StackName"]))
    body = stack.target.template.body if stack.target is not None else ""
    return {"TemplateBody": body, "StagesAvailable": ["Original", "Processed"]}


def get_template_summary(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """GetTemplateSummary of a template or of a stack's."""
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
    """ValidateTemplate, with the checks that a deploy would make first."""
    template = _template(engine, request)
    check_template(template, engine.context.registry)
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
    return parse_template(template_body(request, engine.context.clients, engine.context.region))


def describe_change_set(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """DescribeChangeSet."""
    stack, change_set = get_change_set(engine.context, request)
    return describe.change_set_view(stack, change_set, include_values=bool(request.get("IncludePropertyValues")))


def list_change_sets(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """ListChangeSets."""
    stack = get_stack(engine.context, str(request["StackName"]))
    return {"Summaries": [describe.change_set_summary(stack, one) for one in stack.change_sets.values()]}


def list_exports(engine: Engine, request: Mapping[str, Any]) -> Answer:  # noqa: ARG001 - all actions look alike
    """ListExports."""
    return {
        "Exports": [
            {"ExportingStackId": stack.arn, "Name": name, "Value": value}
            for name, (stack, value) in sorted(engine.context.exports().items())
        ]
    }


def list_imports(engine: Engine, request: Mapping[str, Any]) -> Answer:
    """ListImports."""
    name = str(request["ExportName"])
    importers = engine.context.importers(name)
    if not importers:
        raise ValidationError(f"Export '{name}' is not imported by any stack.")
    return {"Imports": importers}


def list_hook_results(engine: Engine, request: Mapping[str, Any]) -> Answer:  # noqa: ARG001 - as `list_exports`
    """ListHookResults: no hooks exist here; the cdk CLI asks after a failure."""
    return {"HookResults": []}
