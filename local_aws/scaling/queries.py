"""The Describe operations of Application Auto Scaling, and its scheduled actions."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cohost.scaling.schedule_times import next_time
from local_aws.sagemaker.faults import ValidationException
from local_aws.scaling.capacity import NAMESPACE, scalable_of
from local_aws.scaling.faults import ObjectNotFoundException
from local_aws.scaling.records import ScheduledAction
from local_aws.scaling.schedule import check_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from local_aws.sagemaker.account import Account
    from local_aws.scaling.capacity import Scalable
    from local_aws.scaling.clock import Clock
    from local_aws.scaling.operations import AutoScaling
    from local_aws.scaling.records import Activity, Registry, Target

    Request = dict[str, Any]
    Answer = dict[str, Any]

_PAGE = 50
_KEPT = ("Schedule", "Timezone", "StartTime", "EndTime", "ScalableTargetAction")


class Queries:
    """Tells of targets, policies, activities and scheduled actions."""

    def __init__(self, registry: Registry, auto_scaling: AutoScaling) -> None:
        self._registry = registry
        self._auto_scaling = auto_scaling

    async def targets(self, request: Request) -> Answer:
        """DescribeScalableTargets."""
        wanted = request.get("ResourceIds")
        found = [
            _described_target(target)
            for target in self._registry
            if _fits(request, target.scalable) and (not wanted or target.scalable.resource_id in wanted)
        ]
        return _page("ScalableTargets", found, request)

    async def policies(self, request: Request) -> Answer:
        """DescribeScalingPolicies."""
        names = request.get("PolicyNames")
        found = [
            self._auto_scaling.described(target, policy)
            for target in self._registry
            if _fits(request, target.scalable)
            for policy in target.policies.values()
            if not names or policy.name in names
        ]
        return _page("ScalingPolicies", found, request)

    async def activities(self, request: Request) -> Answer:
        """DescribeScalingActivities, newest first; those of targets that are gone too."""
        found = [_described_activity(one) for one in self._registry.activities if _fits(request, one.scalable)]
        return _page("ScalingActivities", found, request)

    async def actions(self, request: Request) -> Answer:
        """DescribeScheduledActions."""
        names = request.get("ScheduledActionNames")
        found = [
            _described_action(target, action)
            for target in self._registry
            if _fits(request, target.scalable)
            for action in target.actions.values()
            if not names or action.name in names
        ]
        return _page("ScheduledActions", found, request)


class ScheduledActions:
    """Puts and deletes scheduled actions; `changed` is called when there is something else to wait for."""

    def __init__(self, account: Account, registry: Registry, clock: Clock, changed: Callable[[], None]) -> None:
        self._account = account
        self._registry = registry
        self._clock = clock
        self._changed = changed

    async def put(self, request: Request) -> Answer:
        """PutScheduledAction; what an update leaves out stays as it was, but for the two times."""
        target = self._registry.get(scalable_of(request))
        name = request["ScheduledActionName"]
        old = target.actions.get(name)
        kept = {key: value for key, value in (old.definition if old else {}).items() if not key.endswith("Time")}
        definition = {**kept, **{key: request[key] for key in _KEPT if request.get(key) is not None}}
        if definition.get("Schedule") is None or definition.get("ScalableTargetAction") is None:
            raise ValidationException("Schedule and ScalableTargetAction must be specified for a new scheduled action")
        check_schedule(definition["Schedule"], definition.get("Timezone", "UTC"))
        now = self._clock.now()
        action = ScheduledAction(name=name, arn=self._arn(target, name), definition=definition, began=now)
        action.due = next_due(action, now)
        target.actions[name] = action
        self._changed()
        return {}

    async def delete(self, request: Request) -> Answer:
        """DeleteScheduledAction."""
        target, name = self._registry.get(scalable_of(request)), request["ScheduledActionName"]
        if target.actions.pop(name, None) is None:
            raise ObjectNotFoundException(
                f"No scheduled action found for {target.scalable.named}, scheduled action name: {name}"
            )
        return {}

    def _arn(self, target: Target, name: str) -> str:
        account = self._account
        return (
            f"arn:{account.partition}:autoscaling:{account.region}:{account.account_id}:scheduledAction:{uuid.uuid4()}:"
            f"resource/{NAMESPACE}/{target.scalable.resource_id}:scheduledActionName/{name}"
        )


def next_due(action: ScheduledAction, now: float) -> float | None:
    """When an action is due next, by the clock; None if never more."""
    definition = action.definition
    start = float(definition.get("StartTime", action.began))
    after = max(now, start - 1) if "StartTime" in definition else now
    due = next_time(definition["Schedule"], definition.get("Timezone", "UTC"), after, start=start)
    return None if due is None or due > float(definition.get("EndTime", due)) else due


def _fits(request: Request, scalable: Scalable) -> bool:
    return all(request.get(key) in {None, value} for key, value in scalable.names.items())


def _page(name: str, found: Iterable[Any], request: Request) -> Answer:
    everything, token = list(found), request.get("NextToken") or "0"
    if not token.isdecimal():
        raise ValidationException("NextToken is not one that an earlier answer gave")
    start, size = int(token), request.get("MaxResults") or _PAGE
    more = {"NextToken": str(start + size)} if start + size < len(everything) else {}
    return {name: everything[start : start + size], **more}


def _described_target(target: Target) -> dict[str, Any]:
    return {
        **target.scalable.names,
        "MinCapacity": target.minimum,
        "MaxCapacity": target.maximum,
        "RoleARN": target.role_arn,
        "CreationTime": target.created,
        "SuspendedState": target.suspended,
        "ScalableTargetARN": target.arn,
    }


def _described_action(target: Target, action: ScheduledAction) -> dict[str, Any]:
    times = {
        key: datetime.fromtimestamp(float(action.definition[key]), UTC)
        for key in ("StartTime", "EndTime")
        if key in action.definition
    }
    return {
        **target.scalable.names,
        **action.definition,
        **times,
        "ScheduledActionName": action.name,
        "ScheduledActionARN": action.arn,
        "CreationTime": action.created,
    }


def _described_activity(activity: Activity) -> dict[str, Any]:
    ended = {} if activity.ended is None else {"EndTime": activity.ended}
    return {
        "ActivityId": activity.identity,
        **activity.scalable.names,
        "Description": activity.description,
        "Cause": activity.cause,
        "StartTime": activity.started,
        **ended,
        "StatusCode": activity.status,
        "StatusMessage": activity.message,
    }
