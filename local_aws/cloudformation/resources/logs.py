"""AWS::Logs::LogGroup."""

from __future__ import annotations

from typing import ClassVar, Final

from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType, call, call_if_there
from local_aws.settings import ACCOUNT_ID, PARTITION

NAME_LIMIT: Final = 512


class LogGroup(ResourceType):
    """A log group with its retention."""

    type: ClassVar[str] = "AWS::Logs::LogGroup"
    known: ClassVar[frozenset[str]] = frozenset({"KmsKeyId", "LogGroupName", "RetentionInDays", "Tags"})
    create_only: ClassVar[frozenset[str]] = frozenset({"LogGroupName"})
    name_property: ClassVar[str | None] = "LogGroupName"

    def create(self, request: Request) -> Outcome:
        """Make the group; one of that name must not exist."""
        name = request.name("LogGroupName", limit=NAME_LIMIT)
        call(
            request.client("logs"),
            "create_log_group",
            logGroupName=name,
            kmsKeyId=request.properties.get("KmsKeyId"),
            tags=request.all_tags() or None,
        )
        request.initiated(name)
        _set_retention(request, name)
        return _outcome(name, request.region)

    def update(self, request: Request) -> Outcome:
        """Change retention and tags."""
        _set_retention(request, request.physical_id)
        tags = request.all_tags()
        if tags:
            call(request.client("logs"), "tag_log_group", logGroupName=request.physical_id, tags=tags)
        return _outcome(request.physical_id, request.region)

    def delete(self, request: Request) -> None:
        """Remove the group with its streams."""
        call_if_there(request.client("logs"), "delete_log_group", logGroupName=request.physical_id)


def _set_retention(request: Request, name: str) -> None:
    days = request.properties.get("RetentionInDays")
    if days is not None:
        call(request.client("logs"), "put_retention_policy", logGroupName=name, retentionInDays=days)
    elif request.changed("RetentionInDays"):
        call_if_there(request.client("logs"), "delete_retention_policy", logGroupName=name)


def _outcome(name: str, region: str) -> Outcome:
    return Outcome(
        physical_id=name, attributes={"Arn": f"arn:{PARTITION}:logs:{region}:{ACCOUNT_ID}:log-group:{name}:*"}
    )
