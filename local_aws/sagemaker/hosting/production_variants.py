"""Production variants that name a model (equal instances with one container each), and the fleet of all variants."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from local_aws.sagemaker.errors import variant_not_found
from local_aws.sagemaker.hosting.component_variant import ComponentVariant
from local_aws.sagemaker.hosting.placement import Placement, new_instance_id
from local_aws.sagemaker.hosting.replicas import Replica, all_of, drain_and_stop, invoke_one
from local_aws.sagemaker.telemetry.metrics import ConcurrencyGauge, InstanceUtilization

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

    from local_aws.sagemaker.hosting.context import EndpointContext
    from local_aws.sagemaker.hosting.endpoint_snapshot import ContainerPlan, VariantPlan

    Variant: TypeAlias = "ModelVariant | ComponentVariant"


class ModelVariant:
    """One production variant that names a model, and its instances; each runs one container of the plan `container`."""

    def __init__(
        self, endpoint_name: str, plan: VariantPlan, container: ContainerPlan, context: EndpointContext
    ) -> None:
        self.plan = plan
        self.container = container
        self.weight = plan.weight
        self._endpoint_name = endpoint_name
        self._context = context
        self._meter = context.metrics.variant_meter(endpoint_name, plan.name)
        interval_s = context.settings.concurrency_interval_s
        self._gauge = ConcurrencyGauge(self._meter, "ConcurrentRequestsPerModel", interval_s, context.clock)
        self.replicas = [self._new_replica() for _ in range(plan.instance_count)]

    @property
    def instance_count(self) -> int:
        """The number of the variant's instances."""
        return len(self.replicas)

    async def start(self) -> None:
        """Start all instances; if one fails, raise DeploymentError after all have started or failed."""
        await all_of([replica.start() for replica in self.replicas])

    async def stop(self) -> None:
        """Stop all instances at once, without waiting for running calls."""
        await asyncio.gather(*(replica.stop() for replica in self.replicas))

    async def drain_and_stop(self) -> None:
        """Stop all instances after their running calls have ended or `drain_limit_s` is over."""
        await drain_and_stop(self.replicas, self._context.settings.drain_limit_s)

    async def resize(self, count: int) -> None:
        """Start or stop instances until the variant has `count`; on DeploymentError it keeps its former ones."""
        added = [self._new_replica() for _ in range(count - len(self.replicas))]
        try:
            await all_of([replica.start() for replica in added])
        except BaseException:
            await asyncio.gather(*(replica.stop() for replica in added))
            raise
        removed = self.replicas[count:]
        self.replicas = [*self.replicas[:count], *added]
        await drain_and_stop(removed, self._context.settings.drain_limit_s)

    async def invoke(self, target: str | None, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Pass a call to an instance and return its container's answer; raises as `invoke_one` does."""
        self._meter.count("InvocationsPerInstance", 1 / max(self.instance_count, 1))
        owner = f"production variant {self.plan.name}"
        with self._gauge.call():
            return await invoke_one(self.replicas, owner, target=target, body=body, headers=headers)

    def report(self) -> None:
        """Record the metrics that are due at intervals, without a call."""
        # AWS documents ConcurrentRequestsPerModel for endpoints of one model, so a multi-model one does not send it.
        if not self.container.multi_model:
            self._gauge.report(self.instance_count)
        for replica in self.replicas:
            replica.report()

    def _new_replica(self) -> Replica:
        placement = Placement(
            endpoint_name=self._endpoint_name, variant_name=self.plan.name, replica_id=new_instance_id()
        )
        return Replica(placement, self.container, self._context.containers)


class Fleet:
    """All production variants of an endpoint, as the endpoint configuration `config_name` defines them."""

    def __init__(
        self, endpoint_name: str, config_name: str, plans: Sequence[VariantPlan], context: EndpointContext
    ) -> None:
        self.config_name = config_name
        self.variants: dict[str, Variant] = {plan.name: _variant(endpoint_name, plan, context) for plan in plans}
        self._credits = dict.fromkeys(self.variants, 0.0)
        self._utilization = {
            name: InstanceUtilization(
                context.metrics.variant_meter(endpoint_name, name), context.clock, context.machine
            )
            for name in self.variants
        }

    @property
    def of_components(self) -> bool:
        """True if the variants are made of inference components; a configuration has variants of one kind only."""
        return any(isinstance(variant, ComponentVariant) for variant in self.variants.values())

    async def start(self) -> None:
        """Start all variants; if one fails, stop the whole fleet and raise DeploymentError."""
        try:
            await all_of([variant.start() for variant in self.variants.values()])
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all variants at once, without waiting for running calls."""
        await asyncio.gather(*(variant.stop() for variant in self.variants.values()))

    async def drain_and_stop(self) -> None:
        """Stop all variants after their running calls have ended or `drain_limit_s` is over."""
        await asyncio.gather(*(variant.drain_and_stop() for variant in self.variants.values()))

    def report(self) -> None:
        """Record all variants' metrics that are due at intervals, without a call."""
        for name, variant in self.variants.items():
            variant.report()
            self._utilization[name].report(variant.instance_count)

    def choose(self, variant_name: str | None) -> Variant:
        """Choose the variant for a call: the one named `variant_name`; if the name is None, choose by weight.

        The choice by weight is smooth weighted round robin, so that each variant's share is exact even over few calls.

        Raises:
            ValidationError: the endpoint has no variant of that name.
        """
        if variant_name is not None:
            if (named := self.variants.get(variant_name)) is None:
                raise variant_not_found(variant_name)
            return named
        if len(self.variants) == 1:
            return next(iter(self.variants.values()))
        for name, variant in self.variants.items():
            self._credits[name] += variant.weight
        chosen = max(self._credits, key=lambda name: self._credits[name])
        self._credits[chosen] -= sum(variant.weight for variant in self.variants.values())
        return self.variants[chosen]


def _variant(endpoint_name: str, plan: VariantPlan, context: EndpointContext) -> Variant:
    if plan.container is None:
        return ComponentVariant(endpoint_name, plan, context)
    return ModelVariant(endpoint_name, plan, plan.container, context)
