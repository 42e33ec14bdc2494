"""Change the capacities of scalable targets, one change per target at a time, and record each change as an activity.

Texts of activities: Application Auto Scaling user guide, "Scaling activities". A policy that an alarm triggers during a
scaling activity has no effect; the alarm triggers the policy again while it stays in ALARM. SageMaker rejects a change
of capacity while another client's change is in progress; the activity then fails with SageMaker's error text.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from local_aws.autoscaling.state import Activity
from local_aws.kit.errors import ServiceFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.autoscaling.state import ScalableTarget, ScalableTargets
    from local_aws.autoscaling.targets import Capacity
    from local_aws.kit.background import BackgroundTasks
    from local_aws.kit.clients import ServiceClients


_POLL_S: Final = 0.2


class Scaler:
    """Changes the capacities of scalable targets; calls `wake` when a capacity is outside of its target's bounds."""

    def __init__(
        self, targets: ScalableTargets, clients: ServiceClients, changes: BackgroundTasks, wake: Callable[[], None]
    ) -> None:
        self._targets = targets
        self._clients = clients
        self._changes = changes
        self._wake = wake

    async def capacity(self, target: ScalableTarget) -> Capacity | None:
        """Read the target's capacity; return None if the resource does not exist in SageMaker."""
        try:
            return await self._clients.run(lambda: target.resource.read(self._clients.sagemaker()))
        except (ClientError, BotoCoreError, ServiceFault):
            return None

    def keep_within_bounds(self, target: ScalableTarget) -> None:
        """In the background, change a capacity outside of the target's bounds to the nearest bound.

        If another change of the capacity is in progress, the bounds are applied after that change.
        """
        self._changes.begin(self._keep_within_bounds(target))

    def begin(self, target: ScalableTarget, wanted: int, cause: str, *, done: Callable[[], None] | None = None) -> None:
        """Change the capacity in the background; `done` is called when the wanted capacity is reached."""
        self._changes.begin(self._change(target, self._record(target, wanted, cause), wanted, done))

    def _record(self, target: ScalableTarget, wanted: int, cause: str) -> Activity:
        activity = Activity(
            resource=target.resource,
            description=f"Setting desired {target.resource.noun} to {wanted}.",
            cause=cause,
        )
        target.activity = activity
        self._targets.activities.appendleft(activity)
        return activity

    async def _keep_within_bounds(self, target: ScalableTarget) -> None:
        found = await self.capacity(target)
        if found is None or not self._targets.holds(target) or target.activity is not None:
            return
        target.outside = (wanted := target.within(found.count)) != found.count
        if target.outside:
            side, bound = ("minimum", target.minimum) if wanted > found.count else ("maximum", target.maximum)
            self.begin(target, wanted, f"{target.occasion}{side} capacity was set to {bound}")
            self._wake()

    async def _change(
        self, target: ScalableTarget, activity: Activity, wanted: int, done: Callable[[], None] | None
    ) -> None:
        noun = target.resource.noun
        try:
            await self._clients.run(lambda: target.resource.write(self._clients.sagemaker(), wanted))
            activity.message = f"Successfully set desired {noun} to {wanted}. Waiting for change to be fulfilled."
            found = await self._settled(target)
        except (ClientError, BotoCoreError, ServiceFault) as fault:
            activity.end("Failed", f"Failed to set desired {noun} to {wanted}. Reason: {fault}")
            return
        finally:
            target.activity = None
        if found.count == wanted:
            activity.end(
                "Successful",
                f"Successfully set desired {noun} to {wanted}. Change successfully fulfilled by sagemaker.",
            )
            if done is not None:
                done()
            # The bounds may have changed during the change of the capacity.
            await self._keep_within_bounds(target)
        else:
            reason = found.failure or f"there are {found.count}"
            activity.end("Unfulfilled", f"The desired {noun} of {wanted} was not reached: {reason}")

    async def _settled(self, target: ScalableTarget) -> Capacity:
        while True:
            found = await self._clients.run(lambda: target.resource.read(self._clients.sagemaker()))
            if not found.changing:
                return found
            await asyncio.sleep(_POLL_S)
