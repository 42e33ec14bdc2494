"""The Endpoint operations of the control plane (AWS API reference: CreateEndpoint and its like)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from local_aws.sagemaker.endpoint import Endpoint
from local_aws.sagemaker.faults import ResourceLimitExceeded, ValidationException, unsupported
from local_aws.sagemaker.listing import page
from local_aws.sagemaker.plan import plan_of
from local_aws.sagemaker.registry import tags_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local_aws.sagemaker.endpoint import Deployments
    from local_aws.sagemaker.fleet import Variant
    from local_aws.sagemaker.registry import Collection, Resource
    from local_aws.sagemaker.settings import Settings

_UNSUPPORTED = (
    "DeploymentConfig",
    "RetainAllVariantProperties",
    "ExcludeRetainedVariantProperties",
    "RetainDeploymentConfig",
)


class Endpoints:
    """Creates, describes, lists, updates and deletes endpoints."""

    def __init__(
        self,
        *,
        collection: Collection[Endpoint],
        configs: Collection[Resource],
        models: Collection[Resource],
        deployments: Deployments,
        settings: Settings,
    ) -> None:
        self._endpoints = collection
        self._configs = configs
        self._models = models
        self._deployments = deployments
        self._settings = settings

    async def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateEndpoint."""
        _refuse_unsupported(request)
        name = request["EndpointName"]
        self._endpoints.check_free(name)
        config = self._configs.get(request["EndpointConfigName"])
        plans = plan_of(config, self._models)
        self._check_quotas((plan.instance_type, plan.instance_count) for plan in plans)
        endpoint = Endpoint(
            name=name, arn=self._endpoints.arn(name), definition={}, tags=tags_of(request), config_name=config.name
        )
        self._deployments.create(endpoint, plans)
        return {"EndpointArn": endpoint.arn}

    async def update(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateEndpoint."""
        _refuse_unsupported(request)
        endpoint = self._endpoints.get(request["EndpointName"])
        config = self._configs.get(request["EndpointConfigName"])
        endpoint.check_steady()
        if endpoint.status == "Failed":
            raise ValidationException(f'Cannot update failed endpoint "{endpoint.arn}". Delete it and create it anew.')
        # The service looks at the configuration that the endpoint leaves too, and refuses if it is gone
        # (hashicorp/terraform-provider-aws#40048).
        self._configs.get(endpoint.config_name)
        plans = plan_of(config, self._models)
        self._check_quotas((plan.instance_type, plan.instance_count) for plan in plans)
        self._deployments.update(endpoint, config.name, plans)
        return {"EndpointArn": endpoint.arn}

    async def rescale(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateEndpointWeightsAndCapacities."""
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
            c["VariantName"]: c["DesiredInstanceCount"] for c in wanted if c.get("DesiredInstanceCount") is not None
        }
        weights = {c["VariantName"]: c["DesiredWeight"] for c in wanted if c.get("DesiredWeight") is not None}
        self._check_quotas(_growth(variants[name], count) for name, count in counts.items())
        self._deployments.rescale(endpoint, counts, weights)
        return {"EndpointArn": endpoint.arn}

    async def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeEndpoint."""
        endpoint = self._endpoints.get(request["EndpointName"])
        answer: dict[str, Any] = {
            "EndpointName": endpoint.name,
            "EndpointArn": endpoint.arn,
            "EndpointConfigName": endpoint.config_name,
            "EndpointStatus": endpoint.status,
            "CreationTime": endpoint.created,
            "LastModifiedTime": endpoint.last_modified,
        }
        if endpoint.fleet is not None:
            answer["ProductionVariants"] = [_described(variant) for variant in endpoint.fleet.variants.values()]
        if endpoint.failure_reason is not None:
            answer["FailureReason"] = endpoint.failure_reason
        return answer

    async def list(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListEndpoints."""
        endpoints, more = page(self._endpoints, request)
        summaries = [
            {
                "EndpointName": endpoint.name,
                "EndpointArn": endpoint.arn,
                "CreationTime": endpoint.created,
                "LastModifiedTime": endpoint.last_modified,
                "EndpointStatus": endpoint.status,
            }
            for endpoint in endpoints
        ]
        return {"Endpoints": summaries, **more}

    async def delete(self, request: dict[str, Any]) -> None:
        """DeleteEndpoint."""
        endpoint = self._endpoints.get(request["EndpointName"])
        endpoint.check_steady()
        self._deployments.delete(endpoint)

    def _check_quotas(self, wanted: Iterable[tuple[str, int]]) -> None:
        used = Counter[str]()
        for endpoint in self._endpoints:
            for fleet in filter(None, (endpoint.fleet, endpoint.starting)):
                for variant in fleet.variants.values():
                    used[variant.plan.instance_type] += len(variant.instances)
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


def _refuse_unsupported(request: dict[str, Any]) -> None:
    for member in _UNSUPPORTED:
        if request.get(member):
            raise unsupported(member)


def _growth(variant: Variant, count: int) -> tuple[str, int]:
    return variant.plan.instance_type, count - len(variant.instances)


def _described(variant: Variant) -> dict[str, Any]:
    count = len(variant.instances)
    return {
        "VariantName": variant.plan.name,
        "DeployedImages": [{"SpecifiedImage": variant.plan.image, "ResolvedImage": variant.plan.image}],
        "CurrentWeight": variant.weight,
        "DesiredWeight": variant.weight,
        "CurrentInstanceCount": count,
        "DesiredInstanceCount": count,
    }
