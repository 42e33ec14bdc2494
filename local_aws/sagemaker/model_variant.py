"""A production variant that names a model: equal instances, each with one container and its own models."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from local_aws.sagemaker.concurrency import ConcurrencyGauge
from local_aws.sagemaker.dispatch import all_of, drain_and_stop, invoke_one
from local_aws.sagemaker.host import Seat
from local_aws.sagemaker.placement import new_instance_id
from local_aws.sagemaker.replica import Replica

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from local_aws.sagemaker.host import Host
    from local_aws.sagemaker.plan import ContainerPlan, VariantPlan


class ModelVariant:
    """One production variant and its instances. `container` is what each of them runs, the plan's own."""

    def __init__(self, endpoint_name: str, plan: VariantPlan, container: ContainerPlan, host: Host) -> None:
        self.plan = plan
        self.container = container
        self.weight = plan.weight
        self._endpoint_name = endpoint_name
        self._host = host
        self._meter = host.metrics.variant_meter(endpoint_name, plan.name)
        interval_s = host.settings.concurrency_interval_s
        self._gauge = ConcurrencyGauge(self._meter, "ConcurrentRequestsPerModel", interval_s, host.clock)
        self.replicas = [self._new_replica() for _ in range(plan.instance_count)]

    @property
    def instance_count(self) -> int:
        """How many instances there are."""
        return len(self.replicas)

    async def start(self) -> None:
        """Start all instances; raises StartFailed, after all have come up or failed."""
        await all_of([replica.start() for replica in self.replicas])

    async def stop(self) -> None:
        """Stop everything at once."""
        await asyncio.gather(*(replica.stop() for replica in self.replicas))

    async def drain_and_stop(self) -> None:
        """Let running calls end, within a limit, and stop everything."""
        await drain_and_stop(self.replicas, self._host.settings.drain_limit_s)

    async def resize(self, count: int) -> None:
        """Have so many instances: start what is missing, drain and stop what is too many. Raises StartFailed."""
        added = [self._new_replica() for _ in range(count - len(self.replicas))]
        try:
            await all_of([replica.start() for replica in added])
        except BaseException:
            await asyncio.gather(*(replica.stop() for replica in added))
            raise
        removed = self.replicas[count:]
        self.replicas = [*self.replicas[:count], *added]
        await drain_and_stop(removed, self._host.settings.drain_limit_s)

    async def invoke(self, target: str | None, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """A container's answer; raises as `invoke_one` does."""
        self._meter.count("InvocationsPerInstance", 1 / max(self.instance_count, 1))
        whose = f"production variant {self.plan.name}"
        with self._gauge.call():
            return await invoke_one(self.replicas, whose, target=target, body=body, headers=headers)

    def report(self) -> None:
        """Record the metrics that no call records."""
        self._gauge.report(self.instance_count)
        for replica in self.replicas:
            replica.report()

    def _new_replica(self) -> Replica:
        seat = Seat(endpoint_name=self._endpoint_name, variant_name=self.plan.name, replica_id=new_instance_id())
        return Replica(seat, self.container, self._host)
