"""Changes capacities, one change of a resource at a time, and keeps the account of it.

Texts of activities: Application Auto Scaling user guide, "Scaling activities". A change that is asked for while another
one of ours goes on is left for the next time that an alarm says so; while somebody else's goes on SageMaker refuses it,
and the activity fails with SageMaker's text.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from local_aws.autoscaling.state import Activity
from local_aws.kit.errors import ServiceFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.autoscaling.state import Registry, Target
    from local_aws.autoscaling.targets import Capacity
    from local_aws.kit.background import BackgroundTasks
    from local_aws.kit.clients import ServiceClients


_POLL_S: Final = 0.2


class Scaler:
    """Brings scalable targets to capacities; `wake` is called when a target is found outside of its bounds."""

    def __init__(
        self, registry: Registry, front: ServiceClients, changes: BackgroundTasks, wake: Callable[[], None]
    ) -> None:
        self._registry = registry
        self._front = front
        self._changes = changes
        self._wake = wake

    async def capacity(self, target: Target) -> Capacity | None:
        """What the target has now; None where SageMaker cannot tell, as after its deletion."""
        try:
            return await self._front.run(lambda: target.scalable.read(self._front.sagemaker()))
        except (ClientError, BotoCoreError, ServiceFault):
            return None

    def keep_within_bounds(self, target: Target) -> None:
        """Bring a capacity that is outside of the target's bounds to the nearer bound, in the background.

        While a change goes on that is left for its end.
        """
        self._changes.begin(self._keep_within_bounds(target))

    def begin(self, target: Target, wanted: int, cause: str, *, done: Callable[[], None] | None = None) -> None:
        """Ask for a capacity, in the background; `done` is called when it is there."""
        self._changes.begin(self._change(target, self._note(target, wanted, cause), wanted, done))

    def _note(self, target: Target, wanted: int, cause: str) -> Activity:
        activity = Activity(
            scalable=target.scalable,
            description=f"Setting desired {target.scalable.noun} to {wanted}.",
            cause=cause,
        )
        target.under_way = activity
        self._registry.activities.appendleft(activity)
        return activity

    async def _keep_within_bounds(self, target: Target) -> None:
        found = await self.capacity(target)
        if found is None or not self._registry.holds(target) or target.under_way is not None:
            return
        target.outside = (wanted := target.within(found.count)) != found.count
        if target.outside:
            side, bound = ("minimum", target.minimum) if wanted > found.count else ("maximum", target.maximum)
            self.begin(target, wanted, f"{target.occasion}{side} capacity was set to {bound}")
            self._wake()

    async def _change(self, target: Target, activity: Activity, wanted: int, done: Callable[[], None] | None) -> None:
        noun = target.scalable.noun
        try:
            await self._front.run(lambda: target.scalable.write(self._front.sagemaker(), wanted))
            activity.message = f"Successfully set desired {noun} to {wanted}. Waiting for change to be fulfilled."
            found = await self._settled(target)
        except (ClientError, BotoCoreError, ServiceFault) as fault:
            activity.end("Failed", f"Failed to set desired {noun} to {wanted}. Reason: {fault}")
            return
        finally:
            target.under_way = None
        if found.count == wanted:
            activity.end(
                "Successful",
                f"Successfully set desired {noun} to {wanted}. Change successfully fulfilled by sagemaker.",
            )
            if done is not None:
                done()
            # The bounds may have moved meanwhile.
            await self._keep_within_bounds(target)
        else:
            reason = found.failure or f"there are {found.count}"
            activity.end("Unfulfilled", f"The desired {noun} of {wanted} was not reached: {reason}")

    async def _settled(self, target: Target) -> Capacity:
        while True:
            found = await self._front.run(lambda: target.scalable.read(self._front.sagemaker()))
            if not found.changing:
                return found
            await asyncio.sleep(_POLL_S)
