"""The instances of an endpoint under one configuration, and which of them takes a call."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import httpx

from local_aws.sagemaker.faults import ServiceUnavailable, ValidationError
from local_aws.sagemaker.instance import Instance

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence

    from local_aws.sagemaker.instance import Host
    from local_aws.sagemaker.plan import VariantPlan

# A holder of the model keeps getting its calls until it has so many more than the idlest instance; then that one
# loads the model too (AWS: "Multi-Model Endpoints": busy models get copies on further instances).
_SPREAD_IN_FLIGHT = 8


class Variant:
    """One production variant: equal instances, each with its own models."""

    def __init__(self, endpoint_name: str, plan: VariantPlan, host: Host) -> None:
        self.plan = plan
        self.weight = plan.weight
        self.instances = [Instance(endpoint_name, plan, host) for _ in range(plan.instance_count)]
        self._endpoint_name = endpoint_name
        self._host = host

    async def start(self) -> None:
        """Start all instances; raises StartFailed, after all have come up or failed."""
        await _all_of([instance.start() for instance in self.instances])

    async def resize(self, count: int) -> None:
        """Have so many instances: start what is missing, drain and stop what is too many. Raises StartFailed."""
        added = [Instance(self._endpoint_name, self.plan, self._host) for _ in range(count - len(self.instances))]
        try:
            await _all_of([instance.start() for instance in added])
        except BaseException:
            await asyncio.gather(*(instance.stop() for instance in added))
            raise
        removed = self.instances[count:]
        self.instances = [*self.instances[:count], *added]
        await _drain_and_stop(removed, self._host.settings.drain_limit_s)

    async def invoke(self, target: str | None, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """A container's answer; another instance is asked when one cannot be reached.

        Raises:
            ServiceUnavailable: no instance can be reached.
            httpx.TransportError: the connection broke, or there was no answer, after the call had been sent.
        """
        tried: set[Instance] = set()
        while True:
            instance = self._choose(target, tried)
            try:
                return await instance.invoke(target, body, headers)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                tried.add(instance)

    def _choose(self, target: str | None, tried: Collection[Instance]) -> Instance:
        ready = [instance for instance in self.instances if instance.ready and instance not in tried]
        if not ready:
            raise ServiceUnavailable(f"No instance of production variant {self.plan.name} is ready; retry the request")
        idlest = min(ready, key=lambda instance: instance.in_flight)
        holders = [instance for instance in ready if instance.holds(target)]
        if not holders:
            return min(ready, key=lambda instance: (instance.model_count, instance.in_flight))
        holder = min(holders, key=lambda instance: instance.in_flight)
        return holder if holder.in_flight - idlest.in_flight < _SPREAD_IN_FLIGHT else idlest


class Fleet:
    """All variants of one configuration. `config_name` is that configuration's."""

    def __init__(self, endpoint_name: str, config_name: str, plans: Sequence[VariantPlan], host: Host) -> None:
        self.config_name = config_name
        self.variants = {plan.name: Variant(endpoint_name, plan, host) for plan in plans}
        self._credits = dict.fromkeys(self.variants, 0.0)
        self._drain_limit_s = host.settings.drain_limit_s

    @property
    def instances(self) -> list[Instance]:
        """Every instance of every variant."""
        return [instance for variant in self.variants.values() for instance in variant.instances]

    async def start(self) -> None:
        """Start everything; raises StartFailed, and then nothing of the fleet is left running."""
        try:
            await _all_of([variant.start() for variant in self.variants.values()])
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything at once."""
        await asyncio.gather(*(instance.stop() for instance in self.instances))

    async def drain_and_stop(self) -> None:
        """Let running calls end, within a limit, and stop everything."""
        await _drain_and_stop(self.instances, self._drain_limit_s)

    def choose(self, variant_name: str | None) -> Variant:
        """The variant for a call: the one it names, or by weight.

        By weight means smooth weighted round robin: shares are exact over a short run, and tests need no luck.

        Raises:
            ValidationError: the endpoint has no variant of that name.
        """
        if variant_name is not None:
            if (named := self.variants.get(variant_name)) is None:
                raise ValidationError(f"Variant {variant_name} not found for Request")
            return named
        if len(self.variants) == 1:
            return next(iter(self.variants.values()))
        for name, variant in self.variants.items():
            self._credits[name] += variant.weight
        chosen = max(self._credits, key=lambda name: self._credits[name])
        self._credits[chosen] -= sum(variant.weight for variant in self.variants.values())
        return self.variants[chosen]


async def _all_of(starts: Iterable[Coroutine[None, None, None]]) -> None:
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


async def _drain_and_stop(instances: Sequence[Instance], limit_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*(instance.drained() for instance in instances)), limit_s)
    await asyncio.gather(*(instance.stop() for instance in instances))
