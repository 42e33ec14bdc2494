"""The EndpointConfig operations of the control plane (AWS API reference: CreateEndpointConfig and similar ones).

As on SageMaker, a configuration in use can be deleted. The next UpdateEndpoint of an endpoint whose configuration was
deleted is rejected, because the old configuration cannot be found (hashicorp/terraform-provider-aws#40048).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_aws.kit.errors import ValidationException
from local_aws.kit.named_resources import Collection, Resource, page, tags_of
from local_aws.sagemaker.control.models import check_role
from local_aws.sagemaker.control.partitions import check_layouts
from local_aws.sagemaker.errors import unsupported

if TYPE_CHECKING:
    from local_aws.kit.clients import ServiceClients
    from local_aws.sagemaker.settings import Settings


_KEPT = (
    "DataCaptureConfig",
    "EnableNetworkIsolation",
    "ExecutionRoleArn",
    "KmsKeyId",
    "ProductionVariants",
    "VpcConfig",
)
_UNSUPPORTED = (
    "AsyncInferenceConfig",
    "CrossRegionTrafficConfig",
    "ExplainerConfig",
    "MetricsConfig",
    "ShadowProductionVariants",
)
_UNSUPPORTED_OF_VARIANT = (
    "AcceleratorType",
    "CapacityReservationConfig",
    "CoreDumpConfig",
    "InstancePools",
    "ServerlessConfig",
)


class EndpointConfigs:
    """Create, describe, list and delete endpoint configurations."""

    def __init__(
        self,
        collection: Collection[Resource],
        models: Collection[Resource],
        clients: ServiceClients,
        settings: Settings,
    ) -> None:
        self._configs = collection
        self._models = models
        self._clients = clients
        self._settings = settings

    async def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer CreateEndpointConfig."""
        name = request["EndpointConfigName"]
        self._configs.check_free(name)
        for member in _UNSUPPORTED:
            if request.get(member):
                raise unsupported(member)
        for variant in request["ProductionVariants"]:
            self._check_variant(variant)
        _check_variants(request["ProductionVariants"])
        await self._check_role(request)
        definition = {key: request[key] for key in _KEPT if request.get(key) is not None}
        definition["ProductionVariants"] = [{"InitialVariantWeight": 1.0, **v} for v in request["ProductionVariants"]]
        config = Resource(name=name, arn=self._configs.arn(name), definition=definition, tags=tags_of(request))
        self._configs.add(config)
        return {"EndpointConfigArn": config.arn}

    async def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer DescribeEndpointConfig."""
        config = self._configs.get(request["EndpointConfigName"])
        return {"EnableNetworkIsolation": False, **config.definition, **config.summary("EndpointConfig")}

    async def list(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer ListEndpointConfigs."""
        configs, more = page(self._configs, request)
        return {"EndpointConfigs": [config.summary("EndpointConfig") for config in configs], **more}

    async def delete(self, request: dict[str, Any]) -> None:
        """Answer DeleteEndpointConfig."""
        self._configs.remove(request["EndpointConfigName"])

    def _check_variant(self, variant: dict[str, Any]) -> None:
        for member in _UNSUPPORTED_OF_VARIANT:
            if variant.get(member):
                raise unsupported(f"{member} of a production variant")
        name = variant["VariantName"]
        for member in ("InstanceType", "InitialInstanceCount"):
            if variant.get(member) is None:
                raise ValidationException(f"{member} must be specified for production variant {name}")
        check_layouts(variant)
        if variant.get("ModelName") is not None:
            self._models.get(variant["ModelName"])
            if variant.get("ManagedInstanceScaling"):
                # The text is quoted in hashicorp/terraform-provider-aws#45926.
                raise ValidationException("ManagedInstanceScaling is only supported for inference component endpoints.")
        elif (scaling := variant.get("ManagedInstanceScaling") or {}).get("Status") == "ENABLED":
            self._check_scaling(scaling, variant["InitialInstanceCount"])

    def _check_scaling(self, scaling: dict[str, Any], initial: int) -> None:
        if scaling.get("ScaleInPolicy"):
            raise unsupported("ScaleInPolicy of ManagedInstanceScaling")
        least, most = scaling.get("MinInstanceCount", initial), scaling.get("MaxInstanceCount", initial)
        if least == 0 and not self._settings.scale_to_zero:
            # The text is quoted in stdapi-ai/stdapi.ai#43, where another region accepted the same request.
            raise ValidationException(
                "Min instance count needs to be greater than 0 for enabled managed instance scaling"
            )
        if not least <= initial <= most:
            raise ValidationException(
                f"InitialInstanceCount {initial} must lie between MinInstanceCount {least} and MaxInstanceCount {most} "
                "of ManagedInstanceScaling"
            )

    async def _check_role(self, request: dict[str, Any]) -> None:
        role = request.get("ExecutionRoleArn")
        if role is not None:
            await check_role(role, self._clients)
        elif request["ProductionVariants"][0].get("ModelName") is None:
            raise ValidationException(
                "ExecutionRoleArn: an endpoint configuration for inference components, whose production variants have "
                "no ModelName, needs the role that the components run with"
            )


def _check_variants(variants: list[dict[str, Any]]) -> None:
    names = [variant["VariantName"] for variant in variants]
    if len(set(names)) < len(names):
        raise ValidationException(f"Production variant names must be unique within an endpoint: {', '.join(names)}")
    if len({variant.get("ModelName") is None for variant in variants}) > 1:
        raise ValidationException(
            "ProductionVariants: all must have a ModelName, or none, which is for inference components"
        )
