"""Resources of this project that still exist, and all SageMaker endpoints of an account and region with their price.

A stack's own list names what it has and, after its deletion, what it left. It forgets what an update replaced and could
not delete; the tags that CloudFormation puts on SageMaker's resources find that.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from cohost.deploy.cleanup.resource_types import BUCKET, COMPONENT, CONFIG, ENDPOINT, KINDS, LOG_GROUP, MODEL, ORDER
from cohost.deploy.cleanup.stacks import resources_of
from cohost.forecast.pricing.price_list import HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import boto3
    from mypy_boto3_sagemaker import SageMakerClient

    from cohost.deploy.cleanup.stacks import OurStack, StackResource
    from cohost.forecast.pricing.price_list import PriceList


STACK_TAG: Final = "aws:cloudformation:stack-name"

_TAGGED: Final = (
    (ENDPOINT, "list_endpoints", "Endpoints", "Endpoint"),
    (CONFIG, "list_endpoint_configs", "EndpointConfigs", "EndpointConfig"),
    (MODEL, "list_models", "Models", "Model"),
)

_LOGGING: Final = {ENDPOINT: "Endpoints", COMPONENT: "InferenceComponents"}


@dataclass(frozen=True, kw_only=True, order=True)
class Leftover:
    """One resource that exists. `kept` is True if its stack leaves it on purpose when it is deleted."""

    type: str
    name: str
    stack: str
    kept: bool = False

    @property
    def bills(self) -> str | None:
        """Return what the resource costs while it exists; None if it costs nothing."""
        return KINDS[self.type].bills


def find_leftovers(session: boto3.Session, stacks: Iterable[OurStack]) -> list[Leftover]:
    """Return everything of these stacks that exists, in the order in which it can be removed, each resource once.

    Resources that are deleted with another one, such as a role's policy, are not listed beside it.
    """
    stacks = list(stacks)
    found: dict[tuple[str, str], Leftover] = {}
    for leftover in (*_listed(session, stacks), *_tagged(session, {stack.name for stack in stacks})):
        found.setdefault((leftover.type, leftover.name), leftover)
    there = [one for one in found.values() if KINDS[one.type].exists(session, one.name)]
    return sorted(there, key=lambda one: (ORDER.index(one.type), one.name))


def stack_of(sagemaker: SageMakerClient, arn: str) -> str | None:
    """Return the stack that created a resource of SageMaker, by its tags; None if no stack did."""
    tags = sagemaker.list_tags(ResourceArn=arn)["Tags"]
    return next((tag["Value"] for tag in tags if tag["Key"] == STACK_TAG), None)


def _listed(session: boto3.Session, stacks: Iterable[OurStack]) -> Iterator[Leftover]:
    for stack in stacks:
        for resource in resources_of(session, stack):
            if (noun := _LOGGING.get(resource.type)) is not None and not _made_anew(session, resource):
                # A container that is on its way out may write once more, when its group is gone already.
                yield _log_group(noun, resource.name, stack.name)
            if resource.type in KINDS and not resource.gone:
                kept = resource.type == BUCKET and resource.status != "DELETE_FAILED" and stack.gone
                yield Leftover(type=resource.type, name=resource.name, stack=stack.name, kept=kept)


def _made_anew(session: boto3.Session, resource: StackResource) -> bool:
    """Return True if a resource of that name exists after the stack's own was deleted: the log is the new one's."""
    return resource.gone and KINDS[resource.type].exists(session, resource.name)


def _tagged(session: boto3.Session, names: set[str]) -> Iterator[Leftover]:
    sagemaker = session.client("sagemaker")
    for kind, operation, field, noun in _TAGGED:
        for page in sagemaker.get_paginator(operation).paginate():  # type: ignore[call-overload]
            for one in page[field]:
                stack = stack_of(sagemaker, one[f"{noun}Arn"])
                if stack is None or stack not in names:
                    continue
                if kind == ENDPOINT:
                    yield from _components(session, one["EndpointName"], stack)
                    yield _log_group(_LOGGING[ENDPOINT], one["EndpointName"], stack)
                yield Leftover(type=kind, name=one[f"{noun}Name"], stack=stack)


def _components(session: boto3.Session, endpoint: str, stack: str) -> Iterator[Leftover]:
    """Return the components of an endpoint: they have no CloudFormation tag, and are deleted before the endpoint."""
    pages = session.client("sagemaker").get_paginator("list_inference_components").paginate(EndpointNameEquals=endpoint)
    for page in pages:
        for one in page["InferenceComponents"]:
            yield Leftover(type=COMPONENT, name=one["InferenceComponentName"], stack=stack)
            yield _log_group(_LOGGING[COMPONENT], one["InferenceComponentName"], stack)


def _log_group(noun: str, name: str, stack: str) -> Leftover:
    """Return the log group that SageMaker creates itself if no stack does, and never removes."""
    return Leftover(type=LOG_GROUP, name=f"/aws/sagemaker/{noun}/{name}", stack=stack)


WINDOW: Final = timedelta(days=7)


@dataclass(frozen=True, kw_only=True)
class RunningEndpoint:
    """One endpoint. `instances` maps each instance type to how many run now; `calls` are those of the last 7 days.

    `usd_per_month` is None where a type's price is not known; `stack` is None for one that no stack made.
    """

    name: str
    status: str
    created: str
    stack: str | None
    instances: Mapping[str, int]
    calls: int
    usd_per_month: float | None


def find_endpoints(session: boto3.Session, region: str, prices: PriceList) -> Iterator[RunningEndpoint]:
    """Return every endpoint of a region, created by this project or not, in SageMaker's order (newest first)."""
    sagemaker = session.client("sagemaker", region_name=region)
    for page in sagemaker.get_paginator("list_endpoints").paginate():
        for one in page["Endpoints"]:
            endpoint: Mapping[str, Any] = sagemaker.describe_endpoint(EndpointName=one["EndpointName"])
            instances = instances_of(sagemaker, endpoint)
            yield RunningEndpoint(
                name=one["EndpointName"],
                status=one["EndpointStatus"],
                created=one["CreationTime"].date().isoformat(),
                stack=stack_of(sagemaker, one["EndpointArn"]),
                instances=instances,
                calls=_calls(session, region, endpoint),
                usd_per_month=_monthly(instances, region, prices),
            )


def instances_of(sagemaker: Any, endpoint: Mapping[str, Any]) -> dict[str, int]:  # a boto3 client
    """Count the running instances of each type; variants without instances of their own (serverless) count as none."""
    config = sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
    types = {variant["VariantName"]: variant.get("InstanceType") for variant in config["ProductionVariants"]}
    counted: dict[str, int] = {}
    for variant in endpoint.get("ProductionVariants", []):
        if (instance_type := types.get(variant["VariantName"])) is not None:
            counted[instance_type] = counted.get(instance_type, 0) + variant.get("CurrentInstanceCount", 0)
    return counted


def _calls(session: boto3.Session, region: str, endpoint: Mapping[str, Any]) -> int:
    cloudwatch = session.client("cloudwatch", region_name=region)
    now = datetime.now(UTC)
    points = [
        point["Sum"]
        for variant in endpoint.get("ProductionVariants", [])
        for point in cloudwatch.get_metric_statistics(
            Namespace="AWS/SageMaker",
            MetricName="Invocations",
            Dimensions=[
                {"Name": "EndpointName", "Value": endpoint["EndpointName"]},
                {"Name": "VariantName", "Value": variant["VariantName"]},
            ],
            StartTime=now - WINDOW,
            EndTime=now + timedelta(minutes=1),
            Period=int(timedelta(days=1).total_seconds()),
            Statistics=["Sum"],
        )["Datapoints"]
    ]
    return int(sum(points))


def _monthly(instances: Mapping[str, int], region: str, prices: PriceList) -> float | None:
    found = {instance_type: prices.find(region, instance_type) for instance_type in instances}
    hourly = 0.0
    for instance_type, count in instances.items():
        price = found[instance_type]
        if price is None and count:
            return None
        hourly += 0 if price is None else price.usd_per_hour * count
    return hourly * HOURS_PER_MONTH
