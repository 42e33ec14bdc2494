"""Put and delete the scheduled actions of scalable targets, and run them when they are due."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from cohost.endpoint.schedules import next_time
from local_aws.autoscaling.errors import ObjectNotFoundException
from local_aws.autoscaling.state import ScheduledAction
from local_aws.autoscaling.targets import NAMESPACE, resource_of
from local_aws.kit.clock import check_schedule
from local_aws.kit.errors import ValidationException

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.autoscaling.operations import Answer, Request
    from local_aws.autoscaling.scaling_activities import Scaler
    from local_aws.autoscaling.state import ScalableTarget, ScalableTargets
    from local_aws.kit.account import Account
    from local_aws.kit.clock import Clock


_RETRY_S: Final = 60
_KEPT: Final = ("Schedule", "Timezone", "StartTime", "EndTime", "ScalableTargetAction")


class ScheduledActions:
    """Puts, deletes and runs scheduled actions; once a minute retries to bring capacities into their bounds.

    Args:
        account: the account and region in ARNs.
        targets: the scalable targets with their scheduled actions.
        scaler: brings capacities within new bounds.
        clock: the clock of the schedules.
        changed: called when `next_due` may have become earlier.
    """

    def __init__(
        self,
        account: Account,
        targets: ScalableTargets,
        scaler: Scaler,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self._account = account
        self._targets = targets
        self._scaler = scaler
        self._clock = clock
        self._changed = changed
        self._retried = 0.0

    async def put(self, request: Request) -> Answer:
        """Answer PutScheduledAction; an update keeps members that its request omits, except StartTime and EndTime."""
        target = self._targets.get(resource_of(request))
        name = request["ScheduledActionName"]
        old = target.actions.get(name)
        kept = {key: value for key, value in (old.definition if old else {}).items() if not key.endswith("Time")}
        definition = {**kept, **{key: request[key] for key in _KEPT if request.get(key) is not None}}
        if definition.get("Schedule") is None or definition.get("ScalableTargetAction") is None:
            raise ValidationException("Schedule and ScalableTargetAction must be specified for a new scheduled action")
        check_schedule(definition["Schedule"], definition.get("Timezone", "UTC"))
        now = self._clock.now()
        action = ScheduledAction(name=name, arn=self._arn(target, name), definition=definition, began=now)
        action.due = _next_time(action, now)
        target.actions[name] = action
        self._changed()
        return {}

    async def delete(self, request: Request) -> Answer:
        """Answer DeleteScheduledAction."""
        target, name = self._targets.get(resource_of(request)), request["ScheduledActionName"]
        if target.actions.pop(name, None) is None:
            raise ObjectNotFoundException(
                f"No scheduled action found for {target.resource.named}, scheduled action name: {name}"
            )
        return {}

    def next_due(self) -> float | None:
        """Return the clock's time in seconds at which `run_due` must be called next; None if it has nothing to do."""
        times = [action.due for target in self._targets for action in target.actions.values()]
        if any(target.outside for target in self._targets):
            times.append(self._retried + _RETRY_S)
        return min((time for time in times if time is not None), default=None)

    def run_due(self) -> None:
        """Run the scheduled actions that are due; once a minute, retry to bring capacities into their bounds."""
        now = self._clock.now()
        for target in self._targets:
            for action in target.actions.values():
                if action.due is not None and action.due <= now:
                    action.due = _next_time(action, now)
                    self._run(target, action)
        if now >= self._retried + _RETRY_S:
            self._retried = now
            for target in self._targets:
                if target.outside:
                    self._scaler.keep_within_bounds(target)

    def _run(self, target: ScalableTarget, action: ScheduledAction) -> None:
        if target.suspended.get("ScheduledScalingSuspended"):
            return
        bounds = action.definition["ScalableTargetAction"]
        target.minimum = bounds.get("MinCapacity", target.minimum)
        target.maximum = bounds.get("MaxCapacity", target.maximum)
        target.occasion = f"scheduled action name {action.name} was triggered, "
        self._scaler.keep_within_bounds(target)

    def _arn(self, target: ScalableTarget, name: str) -> str:
        account = self._account
        return (
            f"arn:{account.partition}:autoscaling:{account.region}:{account.account_id}:scheduledAction:{uuid.uuid4()}:"
            f"resource/{NAMESPACE}/{target.resource.resource_id}:scheduledActionName/{name}"
        )


def _next_time(action: ScheduledAction, now: float) -> float | None:
    """Return the clock's time in seconds of a scheduled action's next run; None if there is no next run."""
    definition = action.definition
    start = float(definition.get("StartTime", action.began))
    after = max(now, start - 1) if "StartTime" in definition else now
    due = next_time(definition["Schedule"], definition.get("Timezone", "UTC"), after, start=start)
    return None if due is None or due > float(definition.get("EndTime", due)) else due
