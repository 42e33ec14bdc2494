"""All SageMaker endpoints of an account and region, with their price: what is running that nobody thinks of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from cohost.cleanup.leftovers import stack_of
from cohost.pricing import HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import boto3

    from cohost.pricing import PriceList

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
    """Every endpoint of a region, of ours or not, in SageMaker's order (the newest first)."""
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


def instances_of(sagemaker: Any, endpoint: Mapping[str, Any]) -> dict[str, int]:  # noqa: ANN401 - a boto3 client
    """How many instances of which type run; variants without instances of their own (serverless) count as none."""
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
