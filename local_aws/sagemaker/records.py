"""All that an account has of SageMaker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_aws.sagemaker.registry import Collection

if TYPE_CHECKING:
    from local_aws.sagemaker.component import InferenceComponent
    from local_aws.sagemaker.endpoint import Endpoint
    from local_aws.sagemaker.registry import Resource


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
