"""Production variants that Application Auto Scaling scales: what an update may not do to them, and their end.

AWS developer guide: "Update endpoints that use auto scaling" (an update that changes the instance type of such a
variant fails) and "Delete endpoints configured for auto scaling" (deleting deregisters them). The text is our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_aws.sagemaker.faults import ValidationException

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from local_aws.sagemaker.endpoint import Endpoint
    from local_aws.sagemaker.front import Front
    from local_aws.sagemaker.plan import VariantPlan

_DIMENSION = "sagemaker:variant:DesiredInstanceCount"


class ScaledVariants:
    """Asks Application Auto Scaling for the variants of an endpoint, by its public API."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def check_update(self, endpoint: Endpoint, plans: Iterable[VariantPlan]) -> None:
        """Check that an update leaves scaled variants their instance type.

        Raises:
            ValidationException: one would get another type, or is not in the new configuration.
        """
        types = {plan.name: plan.instance_type for plan in plans}
        for name in await self._registered(endpoint):
            former = _variants(endpoint)[name]
            if types.get(name) != former:
                becomes = types.get(name) or "no part of the new configuration"
                raise ValidationException(
                    f'Variant {name} of endpoint "{endpoint.arn}" is a scalable target of Application Auto Scaling, '
                    f"and {former} would become {becomes}. Deregister the variant as a scalable target first."
                )

    async def deregister(self, endpoint: Endpoint) -> None:
        """End the scaling of an endpoint that is to be deleted."""
        for name in await self._registered(endpoint):
            await self._front.run(self._deregister, _resource_id(endpoint, name))

    async def _registered(self, endpoint: Endpoint) -> list[str]:
        names = _variants(endpoint)
        if not names or (endpoint.fleet is not None and endpoint.fleet.of_components):
            return []
        ids = {_resource_id(endpoint, name): name for name in names}
        return [ids[found] for found in await self._front.run(self._ask, list(ids))]

    def _ask(self, ids: Sequence[str]) -> list[str]:
        answer = self._front.auto_scaling().describe_scalable_targets(
            ServiceNamespace="sagemaker", ResourceIds=ids, ScalableDimension=_DIMENSION
        )
        return [target["ResourceId"] for target in answer["ScalableTargets"]]

    def _deregister(self, resource_id: str) -> None:
        self._front.auto_scaling().deregister_scalable_target(
            ServiceNamespace="sagemaker", ResourceId=resource_id, ScalableDimension=_DIMENSION
        )


def _variants(endpoint: Endpoint) -> dict[str, str]:
    """The instance types of the endpoint's variants by name."""
    if endpoint.fleet is None:
        return {}
    return {name: variant.plan.instance_type for name, variant in endpoint.fleet.variants.items()}


def _resource_id(endpoint: Endpoint, name: str) -> str:
    return f"endpoint/{endpoint.name}/variant/{name}"
