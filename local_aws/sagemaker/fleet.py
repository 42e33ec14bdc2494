"""All variants of an endpoint under one configuration, and which of them takes a call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from local_aws.sagemaker.component_variant import ComponentVariant
from local_aws.sagemaker.dispatch import all_of
from local_aws.sagemaker.faults import ValidationError
from local_aws.sagemaker.machine_use import MachineUse
from local_aws.sagemaker.model_variant import ModelVariant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local_aws.sagemaker.host import Host
    from local_aws.sagemaker.plan import VariantPlan

    Variant = ModelVariant | ComponentVariant


class Fleet:
    """All variants of one configuration. `config_name` is that configuration's."""

    def __init__(self, endpoint_name: str, config_name: str, plans: Sequence[VariantPlan], host: Host) -> None:
        self.config_name = config_name
        self.variants: dict[str, Variant] = {plan.name: _variant(endpoint_name, plan, host) for plan in plans}
        self._credits = dict.fromkeys(self.variants, 0.0)
        self._use = {
            name: MachineUse(
                host.metrics.variant_meter(endpoint_name, name), host.clock, host.state_dir, host.processor
            )
            for name in self.variants
        }

    @property
    def of_components(self) -> bool:
        """Whether it is made of inference components; a configuration has variants of one kind only."""
        return any(isinstance(variant, ComponentVariant) for variant in self.variants.values())

    async def start(self) -> None:
        """Start everything; raises StartFailed, and then nothing of the fleet is left running."""
        try:
            await all_of([variant.start() for variant in self.variants.values()])
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything at once."""
        await asyncio.gather(*(variant.stop() for variant in self.variants.values()))

    async def drain_and_stop(self) -> None:
        """Let running calls end, within a limit, and stop everything."""
        await asyncio.gather(*(variant.drain_and_stop() for variant in self.variants.values()))

    def report(self) -> None:
        """Record the metrics that no call records."""
        for name, variant in self.variants.items():
            variant.report()
            self._use[name].report(variant.instance_count)

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


def _variant(endpoint_name: str, plan: VariantPlan, host: Host) -> Variant:
    if plan.container is None:
        return ComponentVariant(endpoint_name, plan, host)
    return ModelVariant(endpoint_name, plan, plan.container, host)
