"""Resource types of Application Auto Scaling and EventBridge Scheduler.

`Ref` gives the id of a scalable target and the ARN of a scaling policy (AWS: template reference of each type). The
types' schemas in cfn-lint list the properties whose change creates a new resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType, call, call_if_there

if TYPE_CHECKING:
    from collections.abc import Mapping


SERVICE: Final = "application-autoscaling"
WHOSE: Final = ("ServiceNamespace", "ResourceId", "ScalableDimension")
ID_PARTS: Final = ("ResourceId", "ScalableDimension", "ServiceNamespace")
CONFIGURATIONS: Final = ("StepScalingPolicyConfiguration", "TargetTrackingScalingPolicyConfiguration")
ACTION_MEMBERS: Final = ("Schedule", "Timezone", "StartTime", "EndTime", "ScalableTargetAction")


class ScalableTarget(ResourceType):
    """AWS::ApplicationAutoScaling::ScalableTarget, a scalable target with its scheduled actions."""

    type: ClassVar[str] = "AWS::ApplicationAutoScaling::ScalableTarget"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "MaxCapacity", "MinCapacity", "ResourceId", "RoleARN", "ScalableDimension", "ScheduledActions",
            "ServiceNamespace", "SuspendedState", "Tags",
        }
    )  # fmt: skip

    def create(self, request: Request) -> Outcome:
        """Register a scalable target and put its scheduled actions; fail if the target is registered already.

        Raises:
            ResourceFailure: the target is registered already; a registration would change it.
        """
        physical_id = "|".join(str(request.properties[part]) for part in ID_PARTS)
        if _registered(request):
            raise ResourceFailure(f"{physical_id} already exists: deregister that scalable target first")
        self._register(request)
        request.initiated(physical_id)
        _put_actions(request)
        return Outcome(physical_id=physical_id, attributes={"Id": physical_id})

    def update(self, request: Request) -> Outcome:
        """Update the target's bounds by registering it again, and update its scheduled actions."""
        self._register(request)
        _put_actions(request)
        return Outcome(physical_id=request.physical_id, attributes={"Id": request.physical_id})

    def delete(self, request: Request) -> None:
        """Deregister the target, which deletes its policies and scheduled actions too."""
        call_if_there(request.client(SERVICE), "deregister_scalable_target", **_of_id(request.physical_id))

    @staticmethod
    def _register(request: Request) -> None:
        given = {key: request.properties.get(key) for key in ("MinCapacity", "MaxCapacity", "RoleARN")}
        call(
            request.client(SERVICE),
            "register_scalable_target",
            **_whose(request.properties),
            **given,
            SuspendedState=request.properties.get("SuspendedState"),
            Tags=request.all_tags() or None,
        )


class ScalingPolicy(ResourceType):
    """AWS::ApplicationAutoScaling::ScalingPolicy; the service itself makes the alarms of target tracking."""

    type: ClassVar[str] = "AWS::ApplicationAutoScaling::ScalingPolicy"
    known: ClassVar[frozenset[str]] = frozenset(
        {"PolicyName", "PolicyType", "ScalingTargetId", *WHOSE, *CONFIGURATIONS}
    )

    def create(self, request: Request) -> Outcome:
        """Put the policy."""
        return self._put(request)

    def update(self, request: Request) -> Outcome:
        """Overwrite the policy."""
        return self._put(request)

    def delete(self, request: Request) -> None:
        """Delete the policy, unless it was deleted together with its scalable target."""
        name = request.properties["PolicyName"]
        call_if_there(request.client(SERVICE), "delete_scaling_policy", PolicyName=name, **_target(request))

    @staticmethod
    def _put(request: Request) -> Outcome:
        given = {key: request.properties.get(key) for key in ("PolicyName", "PolicyType", *CONFIGURATIONS)}
        arn = call(request.client(SERVICE), "put_scaling_policy", **_target(request), **given)["PolicyARN"]
        return Outcome(physical_id=arn, attributes={"Arn": arn})


def _target(request: Request) -> dict[str, str]:
    """Return the three members that name the policy's target, from ScalingTargetId or from three properties.

    Raises:
        ResourceFailure: the template gives neither ScalingTargetId nor all three properties.
    """
    if (target_id := request.properties.get("ScalingTargetId")) is not None:
        return _of_id(target_id)
    if missing := [name for name in WHOSE if request.properties.get(name) is None]:
        raise ResourceFailure(f"ScalingPolicy: give ScalingTargetId, or {', '.join(missing)} too")
    return _whose(request.properties)


def _of_id(physical_id: str) -> dict[str, str]:
    return dict(zip(ID_PARTS, physical_id.split("|"), strict=True))


def _whose(properties: Mapping[str, Any]) -> dict[str, str]:
    return {name: properties[name] for name in WHOSE}


def _registered(request: Request) -> bool:
    whose = _whose(request.properties)
    found = call(
        request.client(SERVICE),
        "describe_scalable_targets",
        ServiceNamespace=whose["ServiceNamespace"],
        ResourceIds=[whose["ResourceId"]],
        ScalableDimension=whose["ScalableDimension"],
    )
    return bool(found["ScalableTargets"])


def _put_actions(request: Request) -> None:
    client, whose = request.client(SERVICE), _whose(request.properties)
    wanted = {action["ScheduledActionName"]: action for action in request.properties.get("ScheduledActions") or []}
    former = {action["ScheduledActionName"]: action for action in request.old_properties.get("ScheduledActions") or []}
    for name, action in former.items():
        # PutScheduledAction keeps members that are not given, so a changed action is deleted and created again.
        if wanted.get(name) != action:
            call_if_there(client, "delete_scheduled_action", ScheduledActionName=name, **whose)
    for name, action in wanted.items():
        if action != former.get(name):
            members = {key: action.get(key) for key in ACTION_MEMBERS}
            call(client, "put_scheduled_action", ScheduledActionName=name, **whose, **members)


NAME_LIMIT: Final = 64
DEFAULT_GROUP: Final = "default"
_SETTINGS: Final = (
    "Description", "EndDate", "FlexibleTimeWindow", "GroupName", "KmsKeyArn", "ScheduleExpression",
    "ScheduleExpressionTimezone", "StartDate", "State", "Target",
)  # fmt: skip


class Schedule(ResourceType):
    """AWS::Scheduler::Schedule; `Ref` is the schedule's name. A change of name or group creates a new schedule."""

    type: ClassVar[str] = "AWS::Scheduler::Schedule"
    known: ClassVar[frozenset[str]] = frozenset({*_SETTINGS, "Name"})
    name_property: ClassVar[str | None] = "Name"

    def create(self, request: Request) -> Outcome:
        """Make the schedule."""
        return self._put(request, "create_schedule", request.name("Name", limit=NAME_LIMIT))

    def update(self, request: Request) -> Outcome:
        """Replace all settings, as UpdateSchedule does: a setting that the template omits gets its default."""
        return self._put(request, "update_schedule", request.physical_id)

    def delete(self, request: Request) -> None:
        """Delete the schedule, unless it is a one-time schedule that has already deleted itself after its run."""
        call_if_there(
            request.client("scheduler"), "delete_schedule", Name=request.physical_id, GroupName=_group(request)
        )

    @staticmethod
    def _put(request: Request, method: str, name: str) -> Outcome:
        settings: dict[str, Any] = {key: request.properties.get(key) for key in _SETTINGS}
        arn = call(request.client("scheduler"), method, Name=name, **settings)["ScheduleArn"]
        return Outcome(physical_id=name, attributes={"Arn": arn})


class ScheduleGroup(ResourceType):
    """AWS::Scheduler::ScheduleGroup; `Ref` is the group's name. A group's schedules are deleted with the group."""

    type: ClassVar[str] = "AWS::Scheduler::ScheduleGroup"
    known: ClassVar[frozenset[str]] = frozenset({"Name", "Tags"})
    name_property: ClassVar[str | None] = "Name"

    def create(self, request: Request) -> Outcome:
        """Make the schedule group."""
        name = request.name("Name", limit=NAME_LIMIT)
        client = request.client("scheduler")
        arn = call(client, "create_schedule_group", Name=name, Tags=request.tag_list() or None)["ScheduleGroupArn"]
        return Outcome(physical_id=name, attributes={"Arn": arn})

    def update(self, request: Request) -> Outcome:
        """Put the tags on the schedule group."""
        arn = request.attributes["Arn"]
        if request.tag_list():
            call(request.client("scheduler"), "tag_resource", ResourceArn=arn, Tags=request.tag_list())
        return Outcome(physical_id=request.physical_id, attributes={"Arn": arn})

    def delete(self, request: Request) -> None:
        """Remove the schedule group."""
        call_if_there(request.client("scheduler"), "delete_schedule_group", Name=request.physical_id)


def _group(request: Request) -> str:
    return str(request.properties.get("GroupName", DEFAULT_GROUP))
