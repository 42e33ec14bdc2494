"""Application Auto Scaling and what drives it: alarms that are evaluated, schedules that come due."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError
from starlette.routing import Route, Router

from local_aws.autoscaling.operations import AutoScaling, Queries
from local_aws.autoscaling.policies import Policies
from local_aws.autoscaling.scaling_activities import Scaler
from local_aws.autoscaling.scheduled_actions import ScheduledActions, Timetable
from local_aws.autoscaling.state import Registry
from local_aws.cloudwatch.alarms import Alarms
from local_aws.cloudwatch.routes import Monitoring
from local_aws.kit.account import Account
from local_aws.kit.background import BackgroundTasks
from local_aws.kit.clients import ServiceClients
from local_aws.kit.clock import PATH as CLOCK_PATH
from local_aws.kit.json_protocol import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from local_aws.cloudwatch.metric_store import History
    from local_aws.kit.clock import Clock


_logger = logging.getLogger(__name__)

_SHORTEST_WAIT_S: Final = 0.02
_PAUSE_AFTER_FAULT_S: Final = 1.0


class Scaling:
    """Scaling of one account and region.

    `asgi` answers every request that is signed for "application-autoscaling", and the page `/_cohost/clock`. Nothing
    runs while there is neither an alarm nor a scheduled action.

    Args:
        endpoint_url: where the other embedded services are found; asked when first needed.
        account_id: twelve digits, for ARNs and texts.
        region: an AWS region's name.
        clock: what periods, cooldowns and schedules go by.
        history: the metrics that alarms read.
    """

    asgi: ASGIApp

    def __init__(
        self, *, endpoint_url: Callable[[], str], account_id: str, region: str, clock: Clock, history: History
    ) -> None:
        account = Account(account_id=account_id, region=region)
        self._clock = clock
        self._history = history
        self._woken = asyncio.Event()
        self._front = ServiceClients(endpoint_url, region)
        self._changes = BackgroundTasks()
        self._registry = Registry()
        self._scaler = Scaler(self._registry, self._front, self._changes, self._woken.set)
        self._alarms = Alarms(history, clock, account, self._front, self._woken.set)
        self._policies = Policies(self._registry, self._alarms, self._scaler, clock)
        self._timetable = Timetable(self._registry, self._scaler, clock)
        self._loop: asyncio.Task[None] | None = None
        clock.on_change(self._woken.set)
        self.asgi = self._routes(account)

    def monitoring(self, moto: ASGIApp) -> ASGIApp:
        """CloudWatch's app, for requests that are signed for "monitoring"; moto answers, alarms come alive."""
        return Monitoring(moto, self._history, self._alarms, self._clock)

    async def startup(self) -> None:
        """Start what works in the background. Call it once, in the event loop that serves `asgi`."""
        self._loop = asyncio.create_task(self._work_for_ever())

    async def shutdown(self) -> None:
        """End everything that works in the background."""
        if self._loop is not None:
            self._loop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loop
        await self._changes.give_up()
        self._front.close()

    async def _work_for_ever(self) -> None:
        while True:
            await self._wait()
            try:
                await self._work()
            except BotoCoreError as fault:
                # Mostly the front door, which closes before this ends.
                _logger.info("scaling could not reach a service: %s", fault)
                await asyncio.sleep(_PAUSE_AFTER_FAULT_S)
            except Exception:
                _logger.exception("scaling met a fault of the emulation")
                await asyncio.sleep(_PAUSE_AFTER_FAULT_S)

    async def _work(self) -> None:
        await self._alarms.refresh()
        triggers = await self._alarms.evaluate()
        self._timetable.run()
        await self._policies.act(triggers)

    async def _wait(self) -> None:
        """Wait until something is due, or until there is something else to wait for."""
        times = [time for time in (self._alarms.next_due(), self._timetable.next_due()) if time is not None]
        wait_s = None
        if times:
            wait_s = max(self._clock.real(min(times) - self._clock.now()), _SHORTEST_WAIT_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), wait_s)
        self._woken.clear()

    def _routes(self, account: Account) -> ASGIApp:
        puts = AutoScaling(account, self._registry, self._scaler, self._front)
        asks = Queries(self._registry, puts)
        actions = ScheduledActions(account, self._registry, self._clock, self._woken.set)
        control = ControlPlane(
            {
                "RegisterScalableTarget": puts.register,
                "DeregisterScalableTarget": puts.deregister,
                "DescribeScalableTargets": asks.targets,
                "PutScalingPolicy": puts.put_policy,
                "DeleteScalingPolicy": puts.delete_policy,
                "DescribeScalingPolicies": asks.policies,
                "DescribeScalingActivities": asks.activities,
                "PutScheduledAction": actions.put,
                "DeleteScheduledAction": actions.delete,
                "DescribeScheduledActions": asks.actions,
                "TagResource": puts.tag,
                "UntagResource": puts.untag,
                "ListTagsForResource": puts.tags,
            },
            service="application-autoscaling",
            title="Application Auto Scaling",
        )
        return Router(
            [
                Route(CLOCK_PATH, self._clock.answer, methods=["GET", "PUT"]),
                Route("/", control.answer, methods=["POST"]),
            ]
        )
