"""Scheduled actions: put, deleted, and carried out when they are due."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from cohost.scaling.schedule_times import next_time
from local_aws.autoscaling.errors import ObjectNotFoundException
from local_aws.autoscaling.state import ScheduledAction
from local_aws.autoscaling.targets import NAMESPACE, scalable_of
from local_aws.kit.clock import check_schedule
from local_aws.kit.errors import ValidationException

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.autoscaling.operations import Answer, Request
    from local_aws.autoscaling.scaling_activities import Scaler
    from local_aws.autoscaling.state import Registry, Target
    from local_aws.kit.account import Account
    from local_aws.kit.clock import Clock


_KEPT = ("Schedule", "Timezone", "StartTime", "EndTime", "ScalableTargetAction")


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


_RETRY_S: Final = 60


class Timetable:
    """Carries scheduled actions out, and once a minute looks at targets that are outside of their bounds."""

    def __init__(self, registry: Registry, scaler: Scaler, clock: Clock) -> None:
        self._registry = registry
        self._scaler = scaler
        self._clock = clock
        self._retried = 0.0

    def next_due(self) -> float | None:
        """When there is something to do next, by the clock; None for never."""
        times = [action.due for target in self._registry for action in target.actions.values()]
        if any(target.outside for target in self._registry):
            times.append(self._retried + _RETRY_S)
        return min((time for time in times if time is not None), default=None)

    def run(self) -> None:
        """Do what is due."""
        now = self._clock.now()
        for target in self._registry:
            for action in target.actions.values():
                if action.due is not None and action.due <= now:
                    action.due = next_due(action, now)
                    self._carry_out(target, action)
        if now >= self._retried + _RETRY_S:
            self._retried = now
            for target in self._registry:
                if target.outside:
                    self._scaler.keep_within_bounds(target)

    def _carry_out(self, target: Target, action: ScheduledAction) -> None:
        if target.suspended.get("ScheduledScalingSuspended"):
            return
        bounds = action.definition["ScalableTargetAction"]
        target.minimum = bounds.get("MinCapacity", target.minimum)
        target.maximum = bounds.get("MaxCapacity", target.maximum)
        target.occasion = f"scheduled action name {action.name} was triggered, "
        self._scaler.keep_within_bounds(target)
