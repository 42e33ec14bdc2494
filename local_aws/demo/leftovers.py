"""What is left of a deploy: everything that bills or that a stack made, by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import boto3

BOOTSTRAP_STACK = "CDKToolkit"
BOOTSTRAP_MARK = "cdk-hnb659fds"
"""The qualifier in the name of everything that `cdk bootstrap` makes (aws-cdk: bootstrap template)."""


def find_leftovers(session: boto3.Session) -> dict[str, list[str]]:
    """List what exists in the account by kind, without what `cdk bootstrap` made; a kind with nothing is left out."""
    found = {kind: sorted(filter(_not_bootstrap, find(session))) for kind, find in _FINDERS.items()}
    return {kind: names for kind, names in found.items() if names}


def _not_bootstrap(name: str) -> bool:
    return BOOTSTRAP_MARK not in name and name != BOOTSTRAP_STACK


def _pages(session: boto3.Session, service: str, operation: str, field: str) -> Iterable[dict[str, Any]]:
    client = session.client(service)  # type: ignore[call-overload]
    for page in client.get_paginator(operation).paginate():
        yield from page[field]


def _names(service: str, operation: str, field: str, name: str) -> Callable[[boto3.Session], list[str]]:
    return lambda session: [item[name] for item in _pages(session, service, operation, field)]


def _buckets(session: boto3.Session) -> list[str]:
    return [bucket["Name"] for bucket in session.client("s3").list_buckets()["Buckets"]]


def _objects(session: boto3.Session) -> list[str]:
    paginator = session.client("s3").get_paginator("list_objects_v2")
    return [
        f"{bucket}/{item['Key']}"
        for bucket in _buckets(session)
        for page in paginator.paginate(Bucket=bucket)
        for item in page.get("Contents", [])
    ]


def _stacks(session: boto3.Session) -> list[str]:
    summaries = _pages(session, "cloudformation", "list_stacks", "StackSummaries")
    return [item["StackName"] for item in summaries if item["StackStatus"] != "DELETE_COMPLETE"]


_FINDERS: dict[str, Callable[[boto3.Session], list[str]]] = {
    "stack": _stacks,
    "endpoint": _names("sagemaker", "list_endpoints", "Endpoints", "EndpointName"),
    "endpoint config": _names("sagemaker", "list_endpoint_configs", "EndpointConfigs", "EndpointConfigName"),
    "SageMaker model": _names("sagemaker", "list_models", "Models", "ModelName"),
    "bucket": _buckets,
    "object": _objects,
    "Lambda function": _names("lambda", "list_functions", "Functions", "FunctionName"),
    "role": _names("iam", "list_roles", "Roles", "RoleName"),
    "topic": _names("sns", "list_topics", "Topics", "TopicArn"),
    "alarm": _names("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
    "dashboard": _names("cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
    "schedule": _names("scheduler", "list_schedules", "Schedules", "Name"),
    "log group": _names("logs", "describe_log_groups", "logGroups", "logGroupName"),
}
