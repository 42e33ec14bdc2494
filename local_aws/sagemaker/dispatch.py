"""Which of several containers takes a call, and what happens when it cannot be reached."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

import httpx

from local_aws.sagemaker.faults import ServiceUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence

    from local_aws.sagemaker.replica import Replica

# A holder of the model keeps getting its calls until it has so many more than the idlest container; then that one
# loads the model too (AWS: "Multi-Model Endpoints": busy models get copies on further instances).
_SPREAD_IN_FLIGHT = 8


class Destination(Protocol):
    """What a call goes to: a production variant, or the copies of an inference component."""

    async def invoke(self, target: str | None, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """A container's answer; raises as `invoke_one` does."""


async def invoke_one(
    replicas: Iterable[Replica], whose: str, *, target: str | None, body: bytes, headers: Mapping[str, str]
) -> httpx.Response:
    """A container's answer; another one is asked when one cannot be reached. `whose` they are is for messages.

    Raises:
        ServiceUnavailable: none can be reached.
        httpx.TransportError: the connection broke, or there was no answer, after the call had been sent.
    """
    tried: set[Replica] = set()
    while True:
        ready = [replica for replica in replicas if replica.ready and replica not in tried]
        if not ready:
            raise ServiceUnavailable(f"No instance of {whose} is ready; retry the request")
        replica = choose(ready, target)
        try:
            return await replica.invoke(target, body, headers)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            tried.add(replica)


def choose(ready: Collection[Replica], target: str | None) -> Replica:
    """The container for a call: one that has the model, unless it is much busier than the idlest."""
    idlest = min(ready, key=lambda replica: replica.in_flight)
    holders = [replica for replica in ready if replica.holds(target)]
    if not holders:
        return min(ready, key=lambda replica: (replica.model_count, replica.in_flight))
    holder = min(holders, key=lambda replica: replica.in_flight)
    return holder if holder.in_flight - idlest.in_flight < _SPREAD_IN_FLIGHT else idlest


async def all_of(starts: Iterable[Coroutine[None, None, None]]) -> None:
    """Run all to their end, then raise the first failure. None is left half started, not even by a cancellation."""
    tasks = [asyncio.create_task(start) for start in starts]
    if not tasks:
        return
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    for failure in [task.exception() for task in tasks]:
        if failure is not None:
            raise failure


async def drain_and_stop(replicas: Sequence[Replica], limit_s: float) -> None:
    """Let running calls end, within a limit, and stop the containers. No new calls may come any more."""
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(replica.drained() for replica in replicas)), limit_s)
    finally:
        # Also when the wait is given up: nobody else knows these containers any more.
        await asyncio.gather(*(replica.stop() for replica in replicas))
