"""All resources of an account, and the limits of how many instances they may have."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_aws.kit.named_resources import Collection
from local_aws.sagemaker.errors import ResourceLimitExceeded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local_aws.kit.named_resources import Resource
    from local_aws.sagemaker.hosting.endpoint import Endpoint
    from local_aws.sagemaker.hosting.inference_component import InferenceComponent
    from local_aws.sagemaker.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Records:
    """The account's resources by kind."""

    models: Collection[Resource]
    configs: Collection[Resource]
    endpoints: Collection[Endpoint]
    components: Collection[InferenceComponent]

    @classmethod
    def empty(cls, arn_prefix: str) -> Records:
        """A new account's; `arn_prefix` is what its ARNs start with."""
        return cls(
            models=Collection("model", arn_prefix, "model"),
            configs=Collection("endpoint configuration", arn_prefix, "endpoint-config"),
            endpoints=Collection("endpoint", arn_prefix, "endpoint"),
            components=Collection("inference component", arn_prefix, "inference-component"),
        )

    def components_of(self, endpoint: Endpoint) -> list[InferenceComponent]:
        """The inference components on an endpoint."""
        return [component for component in self.components if component.endpoint is endpoint]


class Quotas:
    """Holds requests for instances against the account's limits."""

    def __init__(self, endpoints: Collection[Endpoint], settings: Settings) -> None:
        self._endpoints = endpoints
        self._settings = settings

    def check(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Check instance types and how many more of each are wanted.

        Raises:
            ResourceLimitExceeded: there would be more of a type than the account may have.
        """
        used = self._used()
        for instance_type, count in wanted:
            quota = self._settings.instance_quota(instance_type)
            if count > 0 and used[instance_type] + count > quota:
                # Quoted in aws/amazon-sagemaker-examples#307.
                raise ResourceLimitExceeded(
                    f"The account-level service limit '{instance_type} for endpoint usage' is {quota} Instances, with "
                    f"current utilization of {used[instance_type]} Instances and a request delta of {count} Instances. "
                    "Please use AWS Service Quotas to request an increase for this quota."
                )
            used[instance_type] += count

    def _used(self) -> Counter[str]:
        used = Counter[str]()
        for endpoint in self._endpoints:
            for fleet in filter(None, (endpoint.fleet, endpoint.starting)):
                for variant in fleet.variants.values():
                    used[variant.plan.instance_type] += variant.instance_count
        return used
