"""The resources that SageMaker's API can scale: instances of production variants, copies of inference components.

Resource ids and dimensions: Application Auto Scaling API reference, RegisterScalableTarget.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from local_aws.kit.errors import ValidationException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_sagemaker import SageMakerClient


NAMESPACE: Final = "sagemaker"
_VARIANT: Final = re.compile(r"endpoint/[^/]+/variant/[^/]+")
_COMPONENT: Final = re.compile(r"inference-component/[^/]+")


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """A resource's capacity: its count, a flag for a change in progress, and the reason if the last change failed."""

    count: int
    changing: bool
    failure: str | None


@dataclass(frozen=True)
class ScalableResource(ABC):
    """A resource whose capacity can be set; `resource_of` checks that the id has the form of the resource's kind.

    Class attributes:
        dimension: the ScalableDimension.
        noun: the capacity's name in texts of activities.
        least: the smallest MinCapacity that can be registered.
    """

    resource_id: str
    dimension: ClassVar[str]
    noun: ClassVar[str]
    least: ClassVar[int]

    @property
    def named(self) -> str:
        """The resource's name in the texts of Application Auto Scaling."""
        return f"service namespace: {NAMESPACE}, resource ID: {self.resource_id}, scalable dimension: {self.dimension}"

    @property
    def names(self) -> dict[str, str]:
        """The members that name the resource in requests and answers of Application Auto Scaling."""
        return {"ServiceNamespace": NAMESPACE, "ResourceId": self.resource_id, "ScalableDimension": self.dimension}

    @property
    @abstractmethod
    def dimensions(self) -> dict[str, str]:
        """The dimensions of the resource's metrics."""

    @abstractmethod
    def read(self, client: SageMakerClient) -> Capacity:
        """Read the capacity; raises ClientError if the resource does not exist."""

    @abstractmethod
    def write(self, client: SageMakerClient, count: int) -> None:
        """Set the capacity; raises ClientError if SageMaker rejects the change."""


class Variant(ScalableResource):
    """The instances of a production variant."""

    dimension: ClassVar[str] = "sagemaker:variant:DesiredInstanceCount"
    noun: ClassVar[str] = "instance count"
    least: ClassVar[int] = 1

    @property
    def _names(self) -> tuple[str, str]:
        _, endpoint, _, variant = self.resource_id.split("/")
        return endpoint, variant

    @property
    def dimensions(self) -> dict[str, str]:
        """The dimensions of the variant's metrics."""
        endpoint, variant = self._names
        return {"EndpointName": endpoint, "VariantName": variant}

    def read(self, client: SageMakerClient) -> Capacity:
        """Read the instance count with DescribeEndpoint."""
        endpoint, name = self._names
        described: Any = client.describe_endpoint(EndpointName=endpoint)
        for variant in described.get("ProductionVariants", []):
            if variant["VariantName"] == name:
                return Capacity(
                    count=variant["CurrentInstanceCount"],
                    changing=described["EndpointStatus"] != "InService",
                    failure=described.get("FailureReason"),
                )
        raise ValidationException(f"Variant {name} not found for endpoint {endpoint}, and there is nothing to scale")

    def write(self, client: SageMakerClient, count: int) -> None:
        """Set the instance count with UpdateEndpointWeightsAndCapacities."""
        endpoint, name = self._names
        client.update_endpoint_weights_and_capacities(
            EndpointName=endpoint, DesiredWeightsAndCapacities=[{"VariantName": name, "DesiredInstanceCount": count}]
        )


class Component(ScalableResource):
    """The copies of an inference component."""

    dimension: ClassVar[str] = "sagemaker:inference-component:DesiredCopyCount"
    noun: ClassVar[str] = "copy count"
    least: ClassVar[int] = 0

    @property
    def _name(self) -> str:
        return self.resource_id.removeprefix("inference-component/")

    @property
    def dimensions(self) -> dict[str, str]:
        """The dimensions of the inference component's metrics."""
        return {"InferenceComponentName": self._name}

    def read(self, client: SageMakerClient) -> Capacity:
        """Read the copy count with DescribeInferenceComponent: during a change the desired, else the current count."""
        described: Any = client.describe_inference_component(InferenceComponentName=self._name)
        changing = described["InferenceComponentStatus"] != "InService"
        copies = described["RuntimeConfig"]
        return Capacity(
            count=copies["DesiredCopyCount"] if changing else copies["CurrentCopyCount"],
            changing=changing,
            failure=described.get("FailureReason"),
        )

    def write(self, client: SageMakerClient, count: int) -> None:
        """Set the copy count with UpdateInferenceComponentRuntimeConfig."""
        client.update_inference_component_runtime_config(
            InferenceComponentName=self._name, DesiredRuntimeConfig={"CopyCount": count}
        )


def resource_of(request: Mapping[str, Any]) -> ScalableResource:
    """Return the resource that a request names by ServiceNamespace, ResourceId and ScalableDimension.

    Raises:
        ValidationException: the three members do not fit together, or name a resource of another service.
    """
    namespace, resource_id = request["ServiceNamespace"], request["ResourceId"]
    if namespace != NAMESPACE:
        raise ValidationException(
            f"ServiceNamespace {namespace}: this emulation of Application Auto Scaling scales sagemaker only"
        )
    for pattern, kind in ((_VARIANT, Variant), (_COMPONENT, Component)):
        if kind.dimension == request["ScalableDimension"] and pattern.fullmatch(resource_id):
            return kind(resource_id)
    raise ValidationException("Unsupported service namespace, resource type or scalable dimension")
