"""AWS::Scheduler::Schedule and AWS::Scheduler::ScheduleGroup (EventBridge Scheduler)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType, call, call_if_there
from local_aws.sagemaker.faults import ValidationException
from local_aws.scaling.schedule import check_schedule
from local_aws.scheduler.targets import TargetError, check_target

NAME_LIMIT: Final = 64
DEFAULT_GROUP: Final = "default"
_SETTINGS: Final = (
    "Description", "EndDate", "FlexibleTimeWindow", "GroupName", "KmsKeyArn", "ScheduleExpression",
    "ScheduleExpressionTimezone", "StartDate", "State", "Target",
)  # fmt: skip


class Schedule(ResourceType):
    """A schedule; `Ref` is its name. A changed name or group makes a new one."""

    type: ClassVar[str] = "AWS::Scheduler::Schedule"
    known: ClassVar[frozenset[str]] = frozenset({*_SETTINGS, "Name"})
    required: ClassVar[frozenset[str]] = frozenset({"FlexibleTimeWindow", "ScheduleExpression", "Target"})
    create_only: ClassVar[frozenset[str]] = frozenset({"GroupName", "Name"})
    name_property: ClassVar[str | None] = "Name"

    def create(self, request: Request) -> Outcome:
        """Make the schedule."""
        return self._put(request, "create_schedule", request.name("Name", limit=NAME_LIMIT))

    def update(self, request: Request) -> Outcome:
        """Replace every setting, as UpdateSchedule does: one that is left out gets its default again."""
        return self._put(request, "update_schedule", request.physical_id)

    def delete(self, request: Request) -> None:
        """Remove the schedule; one that has run once and deleted itself is gone already."""
        call_if_there(
            request.client("scheduler"), "delete_schedule", Name=request.physical_id, GroupName=_group(request)
        )

    @staticmethod
    def _put(request: Request, method: str, name: str) -> Outcome:
        settings: dict[str, Any] = {key: request.properties.get(key) for key in _SETTINGS}
        try:
            check_schedule(str(settings["ScheduleExpression"]), settings["ScheduleExpressionTimezone"] or "UTC")
            check_target(settings["Target"])
        except (ValidationException, TargetError) as error:
            raise ResourceFailure(str(error)) from error
        arn = call(request.client("scheduler"), method, Name=name, **settings)["ScheduleArn"]
        return Outcome(physical_id=name, attributes={"Arn": arn})


class ScheduleGroup(ResourceType):
    """A group of schedules; `Ref` is its name. Schedules in it go with it."""

    type: ClassVar[str] = "AWS::Scheduler::ScheduleGroup"
    known: ClassVar[frozenset[str]] = frozenset({"Name", "Tags"})
    create_only: ClassVar[frozenset[str]] = frozenset({"Name"})
    name_property: ClassVar[str | None] = "Name"

    def create(self, request: Request) -> Outcome:
        """Make the group."""
        name = request.name("Name", limit=NAME_LIMIT)
        client = request.client("scheduler")
        arn = call(client, "create_schedule_group", Name=name, Tags=request.tag_list() or None)["ScheduleGroupArn"]
        return Outcome(physical_id=name, attributes={"Arn": arn})

    def update(self, request: Request) -> Outcome:
        """Change the tags."""
        arn = request.attributes["Arn"]
        if request.tag_list():
            call(request.client("scheduler"), "tag_resource", ResourceArn=arn, Tags=request.tag_list())
        return Outcome(physical_id=request.physical_id, attributes={"Arn": arn})

    def delete(self, request: Request) -> None:
        """Remove the group."""
        call_if_there(request.client("scheduler"), "delete_schedule_group", Name=request.physical_id)


def _group(request: Request) -> str:
    return str(request.properties.get("GroupName", DEFAULT_GROUP))
