"""The Endpoint operations of the control plane (AWS API reference: CreateEndpoint and similar ones).

Two sections of the AWS developer guide give the rules for variants that Application Auto Scaling scales: "Update
endpoints that use auto scaling" (an update that changes the instance type of a scaled variant fails; the text of the
error is the emulator's own) and "Delete endpoints configured for auto scaling" (deleting an endpoint deregisters its
variants as scalable targets).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from local_aws.kit.errors import ValidationException
from local_aws.kit.named_resources import page, tags_of
from local_aws.sagemaker.control.partitions import check_same_layouts
from local_aws.sagemaker.errors import unsupported
from local_aws.sagemaker.hosting.endpoint import Endpoint
from local_aws.sagemaker.hosting.endpoint_snapshot import plan_of
from local_aws.sagemaker.hosting.guardrails import guardrails_of
from local_aws.sagemaker.hosting.production_variants import ModelVariant

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from local_aws.kit.clients import ServiceClients
    from local_aws.sagemaker.hosting.endpoint import EndpointDeployments
    from local_aws.sagemaker.hosting.endpoint_snapshot import VariantPlan
    from local_aws.sagemaker.hosting.production_variants import Variant
    from local_aws.sagemaker.settings import Quotas
    from local_aws.sagemaker.state import SageMakerState


_UNSUPPORTED = ("ExcludeRetainedVariantProperties",)


class Endpoints:
    """Create, describe, list, update and delete endpoints."""

    def __init__(
        self, state: SageMakerState, deployments: EndpointDeployments, quotas: Quotas, scaled: ScaledVariants
    ) -> None:
        self._state = state
        self._endpoints = state.endpoints
        self._configs = state.configs
        self._deployments = deployments
        self._quotas = quotas
        self._scaled = scaled

    async def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer CreateEndpoint."""
        _refuse_unsupported(request)
        name = request["EndpointName"]
        self._endpoints.check_free(name)
        config = self._configs.get(request["EndpointConfigName"])
        plans = plan_of(config, self._state.models)
        self._quotas.check((plan.instance_type, plan.instance_count) for plan in plans)
        guardrails_of(request.get("DeploymentConfig"), plans)
        endpoint = Endpoint(
            name=name,
            arn=self._endpoints.arn(name),
            definition={},
            tags=tags_of(request),
            config_name=config.name,
            deployment=request.get("DeploymentConfig"),
        )
        self._deployments.create(endpoint, plans)
        return {"EndpointArn": endpoint.arn}

    async def update(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer UpdateEndpoint."""
        _refuse_unsupported(request)
        endpoint = self._endpoints.get(request["EndpointName"])
        config = self._configs.get(request["EndpointConfigName"])
        endpoint.check_steady()
        if endpoint.status == "Failed":
            raise ValidationException(f'Cannot update failed endpoint "{endpoint.arn}". Delete it and create it anew.')
        # SageMaker also reads the old configuration of the endpoint, and rejects the update if that configuration is
        # deleted (hashicorp/terraform-provider-aws#40048).
        self._configs.get(endpoint.config_name)
        plans = plan_of(config, self._state.models)
        if request.get("RetainAllVariantProperties"):
            plans = _retaining(endpoint, plans)
        self._check_components(endpoint, plans)
        await self._scaled.check_update(endpoint, plans)
        # Another change may have begun during the call to Application Auto Scaling.
        endpoint.check_steady()
        self._quotas.check((plan.instance_type, plan.instance_count) for plan in plans)
        deployment = endpoint.deployment if request.get("RetainDeploymentConfig") else request.get("DeploymentConfig")
        guardrails = guardrails_of(deployment, plans)
        endpoint.deployment = deployment
        self._deployments.update(endpoint, config.name, plans, guardrails)
        return {"EndpointArn": endpoint.arn}

    async def rescale(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer UpdateEndpointWeightsAndCapacities."""
        endpoint = self._endpoints.get(request["EndpointName"])
        endpoint.check_steady()
        variants = {} if endpoint.fleet is None else endpoint.fleet.variants
        wanted = request["DesiredWeightsAndCapacities"]
        for change in wanted:
            if change["VariantName"] not in variants:
                raise ValidationException(f'Variant {change["VariantName"]} not found for endpoint "{endpoint.arn}".')
            if change.get("ServerlessUpdateConfig"):
                raise unsupported("ServerlessUpdateConfig")
        counts = {
            _resizable(variants[change["VariantName"]]): change["DesiredInstanceCount"]
            for change in wanted
            if change.get("DesiredInstanceCount") is not None
        }
        weights = {
            variants[change["VariantName"]]: change["DesiredWeight"]
            for change in wanted
            if change.get("DesiredWeight") is not None
        }
        self._quotas.check(
            (variant.plan.instance_type, count - variant.instance_count) for variant, count in counts.items()
        )
        self._deployments.rescale(endpoint, counts, weights)
        return {"EndpointArn": endpoint.arn}

    async def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer DescribeEndpoint."""
        endpoint = self._endpoints.get(request["EndpointName"])
        answer: dict[str, Any] = {
            **_summary(endpoint),
            "EndpointConfigName": endpoint.config_name,
        }
        if endpoint.fleet is not None:
            answer["ProductionVariants"] = [_described(variant) for variant in endpoint.fleet.variants.values()]
        if endpoint.deployment is not None:
            answer["LastDeploymentConfig"] = endpoint.deployment
        if endpoint.failure_reason is not None:
            answer["FailureReason"] = endpoint.failure_reason
        return answer

    async def list(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer ListEndpoints."""
        endpoints, more = page(self._endpoints, request)
        return {"Endpoints": [_summary(endpoint) for endpoint in endpoints], **more}

    async def delete(self, request: dict[str, Any]) -> None:
        """Answer DeleteEndpoint."""
        endpoint = self._endpoints.get(request["EndpointName"])
        endpoint.check_steady()
        if self._state.components_of(endpoint):
            # The text is quoted in gruntwork-io/cloud-nuke#1142.
            raise ValidationException(
                "Cannot delete endpoint with inference component associated. Please delete inference component and try "
                "it again."
            )
        await self._scaled.deregister(endpoint)
        endpoint.check_steady()
        self._deployments.delete(endpoint)

    def _check_components(self, endpoint: Endpoint, plans: Sequence[VariantPlan]) -> None:
        """Check that an update keeps the endpoint's kind (models or components) and every variant with components."""
        if endpoint.fleet is not None and endpoint.fleet.of_components != (plans[0].container is None):
            raise ValidationException(
                f'Cannot update endpoint "{endpoint.arn}" from a configuration with models to one for inference '
                "components, or back. Delete the endpoint and create it anew."
            )
        check_same_layouts(endpoint, plans)
        kept = {plan.name for plan in plans}
        for component in self._state.components_of(endpoint):
            component.check_steady("update endpoint of")
            if component.variant_name not in kept:
                raise ValidationException(
                    f"Variant {component.variant_name} has inference component {component.name} and is not in the new "
                    "endpoint configuration. Delete the inference component or keep the variant."
                )


def _retaining(endpoint: Endpoint, plans: Sequence[VariantPlan]) -> tuple[VariantPlan, ...]:
    """Return the plans with the running variants' instance counts and weights (RetainAllVariantProperties)."""
    variants = {} if endpoint.fleet is None else endpoint.fleet.variants
    return tuple(
        replace(plan, instance_count=former.instance_count, weight=former.weight)
        if isinstance(former := variants.get(plan.name), ModelVariant)
        else plan
        for plan in plans
    )


def _summary(endpoint: Endpoint) -> dict[str, Any]:
    changes = {"LastModifiedTime": endpoint.last_modified, "EndpointStatus": endpoint.status}
    return endpoint.summary("Endpoint") | changes


def _refuse_unsupported(request: dict[str, Any]) -> None:
    for member in _UNSUPPORTED:
        if request.get(member):
            raise unsupported(member)


def _resizable(variant: Variant) -> ModelVariant:
    if not isinstance(variant, ModelVariant):
        raise unsupported(f"DesiredInstanceCount of variant {variant.plan.name}, which is made of inference components")
    return variant


def _described(variant: Variant) -> dict[str, Any]:
    count = variant.instance_count
    described = {
        "VariantName": variant.plan.name,
        "CurrentWeight": variant.weight,
        "DesiredWeight": variant.weight,
        "CurrentInstanceCount": count,
        "DesiredInstanceCount": count,
    }
    if isinstance(variant, ModelVariant):
        image = variant.container.image
        described["DeployedImages"] = [{"SpecifiedImage": image, "ResolvedImage": image}]
    if variant.plan.partitions:
        described["AcceleratorPartitionLayouts"] = [{"AcceleratorPartitionTypes": list(variant.plan.partitions)}]
    if (scaling := variant.plan.scaling) is not None:
        described["ManagedInstanceScaling"] = {
            "Status": "ENABLED",
            "MinInstanceCount": scaling.minimum,
            "MaxInstanceCount": scaling.maximum,
        }
    return described


_DIMENSION = "sagemaker:variant:DesiredInstanceCount"


class ScaledVariants:
    """Find and deregister an endpoint's variants in Application Auto Scaling, through its public API."""

    def __init__(self, clients: ServiceClients) -> None:
        self._clients = clients

    async def check_update(self, endpoint: Endpoint, plans: Iterable[VariantPlan]) -> None:
        """Check that an update keeps the instance types of variants that are scalable targets.

        Raises:
            ValidationException: such a variant would get another instance type, or is not in the new configuration.
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
        """Deregister the variants of an endpoint as scalable targets, before the endpoint is deleted."""
        for name in await self._registered(endpoint):
            await self._clients.run(self._deregister, _resource_id(endpoint, name))

    async def _registered(self, endpoint: Endpoint) -> list[str]:
        names = _variants(endpoint)
        if not names or (endpoint.fleet is not None and endpoint.fleet.of_components):
            return []
        ids = {_resource_id(endpoint, name): name for name in names}
        return [ids[found] for found in await self._clients.run(self._ask, list(ids))]

    def _ask(self, ids: Sequence[str]) -> list[str]:
        answer = self._clients.auto_scaling().describe_scalable_targets(
            ServiceNamespace="sagemaker", ResourceIds=ids, ScalableDimension=_DIMENSION
        )
        return [target["ResourceId"] for target in answer["ScalableTargets"]]

    def _deregister(self, resource_id: str) -> None:
        self._clients.auto_scaling().deregister_scalable_target(
            ServiceNamespace="sagemaker", ResourceId=resource_id, ScalableDimension=_DIMENSION
        )


def _variants(endpoint: Endpoint) -> dict[str, str]:
    """Return the instance types of an endpoint's variants by the variants' names."""
    if endpoint.fleet is None:
        return {}
    return {name: variant.plan.instance_type for name, variant in endpoint.fleet.variants.items()}


def _resource_id(endpoint: Endpoint, name: str) -> str:
    return f"endpoint/{endpoint.name}/variant/{name}"
