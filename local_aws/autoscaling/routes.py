"""The HTTP interface of Application Auto Scaling, and its background work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route, Router

from local_aws.autoscaling.operations import DescribeOperations, TargetOperations
from local_aws.autoscaling.policies import Policies
from local_aws.autoscaling.scaling_activities import Scaler
from local_aws.autoscaling.scheduled_actions import ScheduledActions
from local_aws.autoscaling.state import ScalableTargets
from local_aws.kit.background import BackgroundTasks, DueLoop
from local_aws.kit.clients import ServiceClients
from local_aws.kit.json_protocol import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp

    from local_aws.kit.account import Account
    from local_aws.kit.alarm_actions import AlarmsInAlarm, AlarmTrigger
    from local_aws.kit.clock import Clock


class AutoScaling:
    """Application Auto Scaling of one account and region; `asgi` answers the requests to it.

    No background work runs while no target has a scheduled action.

    Args:
        endpoint_url: returns the emulator's URL, where the other services are; called when first needed.
        account: the account and region in ARNs.
        clock: the clock of cooldowns and schedules.
        in_alarm: returns those of the given alarm names that are in ALARM.
    """

    def __init__(
        self, *, endpoint_url: Callable[[], str], account: Account, clock: Clock, in_alarm: AlarmsInAlarm
    ) -> None:
        self._clients = ServiceClients(endpoint_url, account.region)
        self._tasks = BackgroundTasks()
        self._targets = ScalableTargets()
        self._loop = DueLoop("Application Auto Scaling", clock, next_due=self._next_due, work=self._run_due)
        self._scaler = Scaler(self._targets, self._clients, self._tasks, self._loop.wake)
        self._policies = Policies(self._targets, in_alarm, self._scaler, clock)
        self._actions = ScheduledActions(account, self._targets, self._scaler, clock, self._loop.wake)
        self.asgi = self._app(account)

    def targets_of(self, endpoint: str) -> list[str]:
        """Return the resource ids of an endpoint's variants that are registered to be scaled."""
        ids = (target.resource.resource_id for target in self._targets)
        return [one for one in ids if one.lower().startswith(f"endpoint/{endpoint.lower()}/variant/")]

    async def act_on_alarms(self, triggers: Sequence[AlarmTrigger]) -> None:
        """Run the scheduled actions that are due, then apply the scaling policies that alarms have triggered."""
        self._actions.run_due()
        await self._policies.act(triggers)

    async def startup(self) -> None:
        """Start to run scheduled actions. Call this method once, in the event loop that serves `asgi`."""
        self._loop.start()

    async def shutdown(self) -> None:
        """Stop running scheduled actions, and cancel the changes of capacities that are in progress."""
        await self._loop.stop()
        await self._tasks.give_up()
        await self._clients.close()

    def _next_due(self) -> float | None:
        return self._actions.next_due()

    async def _run_due(self) -> None:
        self._actions.run_due()

    def _app(self, account: Account) -> ASGIApp:
        targets = TargetOperations(account, self._targets, self._scaler, self._clients)
        descriptions = DescribeOperations(self._targets, targets)
        control = ControlPlane(
            {
                "RegisterScalableTarget": targets.register,
                "DeregisterScalableTarget": targets.deregister,
                "DescribeScalableTargets": descriptions.targets,
                "PutScalingPolicy": targets.put_policy,
                "DeleteScalingPolicy": targets.delete_policy,
                "DescribeScalingPolicies": descriptions.policies,
                "DescribeScalingActivities": descriptions.activities,
                "PutScheduledAction": self._actions.put,
                "DeleteScheduledAction": self._actions.delete,
                "DescribeScheduledActions": descriptions.actions,
                "TagResource": targets.tag,
                "UntagResource": targets.untag,
                "ListTagsForResource": targets.tags,
            },
            service="application-autoscaling",
            title="Application Auto Scaling",
        )
        return Router([Route("/", control.answer, methods=["POST"])])
