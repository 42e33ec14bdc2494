"""The engine's records in the form of CloudFormation's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from local_aws.cloudformation.planning import described
from local_aws.cloudformation.stack import REVIEW

if TYPE_CHECKING:
    from local_aws.cloudformation.stack import ChangeSet, Event, Stack, StackResource

EVENTS_PER_PAGE: Final = 100


def stack_view(stack: Stack) -> dict[str, Any]:
    """An entry of DescribeStacks."""
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
    """An entry of ListStacks."""
    view = stack_view(stack)
    names = ("StackId", "StackName", "CreationTime", "LastUpdatedTime", "DeletionTime", "StackStatus")
    summary = {name: view[name] for name in (*names, "StackStatusReason", "DriftInformation")}
    return {**summary, "TemplateDescription": view.get("Description")}


def resource_summary(resource: StackResource) -> dict[str, Any]:
    """An entry of ListStackResources."""
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
    """An entry of DescribeStackResources."""
    view = resource_summary(resource)
    view["Timestamp"] = view.pop("LastUpdatedTimestamp")
    return {"StackName": stack.name, "StackId": stack.arn, **view}


def event_page(stack: Stack, token: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """One page of a stack's events, newest first, and the token of the next.

    The token counts the events that are older than the page, so that new ones in between shift nothing.
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
    """An entry of ListChangeSets."""
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
    """The answer of DescribeChangeSet."""
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
