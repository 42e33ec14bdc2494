"""The SageMaker resources of one account."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_aws.kit.named_resources import Collection

if TYPE_CHECKING:
    from local_aws.kit.named_resources import Resource
    from local_aws.sagemaker.hosting.endpoint import Endpoint
    from local_aws.sagemaker.hosting.inference_component import InferenceComponent


@dataclass(frozen=True, kw_only=True)
class SageMakerState:
    """The account's SageMaker resources by kind."""

    models: Collection[Resource]
    configs: Collection[Resource]
    endpoints: Collection[Endpoint]
    components: Collection[InferenceComponent]

    @classmethod
    def empty(cls, arn_prefix: str) -> SageMakerState:
        """Make the state of a new account; all its ARNs start with `arn_prefix`."""
        return cls(
            models=Collection("model", arn_prefix, "model"),
            configs=Collection("endpoint configuration", arn_prefix, "endpoint-config"),
            endpoints=Collection("endpoint", arn_prefix, "endpoint"),
            components=Collection("inference component", arn_prefix, "inference-component"),
        )

    def components_of(self, endpoint: Endpoint) -> list[InferenceComponent]:
        """Return the inference components on an endpoint."""
        return [component for component in self.components if component.endpoint is endpoint]

    def instances_in_use(self) -> Counter[str]:
        """Count the instances of all endpoints by instance type, including those that an update is starting."""
        used = Counter[str]()
        for endpoint in self.endpoints:
            for fleet in filter(None, (endpoint.fleet, endpoint.starting)):
                for variant in fleet.variants.values():
                    used[variant.plan.instance_type] += variant.instance_count
        return used
