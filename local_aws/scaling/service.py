"""Application Auto Scaling and what drives it: alarms that are evaluated, schedules that come due."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.routing import Route, Router

from local_aws.sagemaker.account import Account
from local_aws.sagemaker.changes import Changes
from local_aws.sagemaker.control import ControlPlane
from local_aws.sagemaker.front import Front
from local_aws.scaling.clock import PATH as CLOCK_PATH
from local_aws.scaling.operations import AutoScaling
from local_aws.scaling.queries import Queries, ScheduledActions
from local_aws.scaling.records import Registry
from local_aws.scaling.scaler import Scaler

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from local_aws.scaling.clock import Clock


class Scaling:
    """Scaling of one account and region.

    `asgi` answers every request that is signed for "application-autoscaling", and the page `/_cohost/clock`.

    Args:
        endpoint_url: where the other embedded services are found; asked when first needed.
        account_id: twelve digits, for ARNs and texts.
        region: an AWS region's name.
        clock: what periods, cooldowns and schedules go by.
    """

    asgi: ASGIApp

    def __init__(self, *, endpoint_url: Callable[[], str], account_id: str, region: str, clock: Clock) -> None:
        self.clock = clock
        self._changed = asyncio.Event()
        self._front = Front(endpoint_url, region)
        self._changes = Changes()
        self._registry = Registry()
        self._scaler = Scaler(self._registry, clock, self._front, self._changes)
        self.asgi = self._routes(Account(account_id=account_id, region=region))

    async def shutdown(self) -> None:
        """End everything that works in the background."""
        await self._changes.give_up()
        self._front.close()

    def _routes(self, account: Account) -> ASGIApp:
        puts = AutoScaling(account, self._registry, self._scaler, self._front)
        asks = Queries(self._registry, puts)
        actions = ScheduledActions(account, self._registry, self.clock, self._changed.set)
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
                Route(CLOCK_PATH, self.clock.answer, methods=["GET", "PUT"]),
                Route("/", control.answer, methods=["POST"]),
            ]
        )
