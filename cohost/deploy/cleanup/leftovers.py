"""Resources of this project that still exist, and all SageMaker endpoints of an account and region with their price.

CloudFormation lists a stack's resources with their status, even after the deletion of the stack. CloudFormation's list
of a stack omits resources that an update replaced but could not delete, so they are found by the tags of SageMaker's
resources.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from cohost.deploy.cleanup.resource_types import (
    BUCKET,
    COMPONENT,
    ENDPOINT,
    KINDS,
    LOG_GROUP,
    MODEL,
    ORDER,
    is_missing,
    names_by_arn,
)
from cohost.deploy.cleanup.stacks import resources_of
from cohost.endpoint.stack_outputs import STACK_TAG
from cohost.forecast.pricing.price_list import HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import boto3
    from mypy_boto3_sagemaker import SageMakerClient

    from cohost.deploy.cleanup.stacks import OurStack, StackResource
    from cohost.forecast.pricing.price_list import PriceList


# CloudFormation writes this tag on models, but neither on endpoints nor on endpoint configurations (the property
# cloudFormationSystemTags of the resource schemas).
_CLOUDFORMATION_TAG: Final = "aws:cloudformation:stack-name"

_LOGGING: Final = {ENDPOINT: "Endpoints", COMPONENT: "InferenceComponents"}


@dataclass(frozen=True, kw_only=True, order=True)
class Leftover:
    """One resource that still exists. `kept` is True if its stack's deletion leaves the resource on purpose."""

    type: str
    name: str
    stack: str
    kept: bool = False

    @property
    def bills(self) -> str | None:
        """Return a text about the costs of the resource while it exists; None if it costs nothing."""
        return KINDS[self.type].bills


def find_leftovers(session: boto3.Session, stacks: Iterable[OurStack]) -> list[Leftover]:
    """Return each existing resource of these stacks once, in the order in which the resources can be removed.

    A resource that is deleted together with another one, such as a role's policy, is not listed.
    """
    stacks, account = list(stacks), _Account(session)
    found: dict[tuple[str, str], Leftover] = {}
    for leftover in (*_listed(account, stacks), *_tagged(account, {stack.name for stack in stacks})):
        found.setdefault((leftover.type, leftover.name), leftover)
    there = [one for one in found.values() if KINDS[one.type].exists(session, one.name)]
    return sorted(there, key=lambda one: (ORDER.index(one.type), one.name))


def stack_of(sagemaker: SageMakerClient, arn: str) -> str | None:
    """Return the name of the stack that created a SageMaker resource, read from its tags; None if no tag names it."""
    pages = sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
    tags = {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}
    return tags.get(STACK_TAG) or tags.get(_CLOUDFORMATION_TAG)


class _Account:
    """SageMaker's resources and the log groups of an account. Each list of resources is requested once, then cached."""

    def __init__(self, session: boto3.Session) -> None:
        self.session = session
        self.sagemaker = session.client("sagemaker")
        self.names = cache(partial(names_by_arn, session))
        self._groups = cache(self._list_groups)

    def logs_of(self, resource_type: str, name: str, stack: str) -> Iterator[Leftover]:
        """Yield the log group of an endpoint or component; SageMaker creates a missing one, and never deletes it.

        Upper and lower case are ignored: the name of a deleted resource is known in lower case only.
        """
        for group in self._groups(prefix := f"/aws/sagemaker/{_LOGGING[resource_type]}/"):
            if group.lower() == f"{prefix}{name}".lower():
                yield Leftover(type=LOG_GROUP, name=group, stack=stack)

    def _list_groups(self, prefix: str) -> list[str]:
        pages = self.session.client("logs").get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix)
        return [group["logGroupName"] for page in pages for group in page["logGroups"]]


def _listed(account: _Account, stacks: Iterable[OurStack]) -> Iterator[Leftover]:
    for stack in stacks:
        for resource in resources_of(account.session, stack):
            if resource.type in _LOGGING and not _made_anew(account, resource):
                # A container that is being stopped may write again after its log group was deleted, which creates the
                # group again.
                yield from account.logs_of(resource.type, resource.name, stack.name)
            if resource.type in KINDS and not resource.gone:
                kept = resource.type == BUCKET and resource.status != "DELETE_FAILED" and stack.gone
                yield Leftover(type=resource.type, name=resource.name, stack=stack.name, kept=kept)


def _made_anew(account: _Account, resource: StackResource) -> bool:
    """Return True if the stack's resource was deleted, and a newer resource of its name now owns the log group."""
    return resource.gone and resource.name in {name.lower() for name in account.names(resource.type).values()}


def _tagged(account: _Account, stacks: set[str]) -> Iterator[Leftover]:
    """Yield endpoints and models whose tags name one of the stacks, and the endpoints' components and log groups.

    Endpoint configurations have no tag that names a stack.
    """
    for kind in (ENDPOINT, MODEL):
        for arn, name in account.names(kind).items():
            stack = stack_of(account.sagemaker, arn)
            if stack is None or stack not in stacks:
                continue
            if kind == ENDPOINT:
                yield from _components(account, name, stack)
                yield from account.logs_of(ENDPOINT, name, stack)
            yield Leftover(type=kind, name=name, stack=stack)


def _components(account: _Account, endpoint: str, stack: str) -> Iterator[Leftover]:
    """Yield an endpoint's inference components with their log groups.

    Components have no tag of the stack, and must be deleted before the endpoint.
    """
    for name in names_by_arn(account.session, COMPONENT, EndpointNameEquals=endpoint).values():
        yield Leftover(type=COMPONENT, name=name, stack=stack)
        yield from account.logs_of(COMPONENT, name, stack)


WINDOW: Final = timedelta(days=7)
UNKNOWN_TYPE: Final = "unknown type"


@dataclass(frozen=True, kw_only=True)
class RunningEndpoint:
    """One SageMaker endpoint with its running instances, their price and the endpoint's use.

    `instances` maps each instance type to the number that runs now; `calls` counts the invocations of the last 7 days.
    `usd_per_month` is None if the price of an instance type is not known; `stack` is None if no stack created the
    endpoint.
    """

    name: str
    status: str
    created: str
    stack: str | None
    instances: Mapping[str, int]
    calls: int
    usd_per_month: float | None


def find_endpoints(session: boto3.Session, region: str, prices: PriceList) -> Iterator[RunningEndpoint]:
    """Yield every endpoint of a region, created by this project or not, in SageMaker's order (newest first)."""
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


def instances_of(sagemaker: Any, endpoint: Mapping[str, Any]) -> dict[str, int]:  # boto3 clients have no static type
    """Count an endpoint's running instances by type. A serverless variant has no instances and adds nothing.

    An endpoint keeps running after its configuration was deleted; its instances then count under UNKNOWN_TYPE.
    """
    types = _instance_types(sagemaker, endpoint["EndpointConfigName"])
    counted: Counter[str] = Counter()
    for variant in endpoint.get("ProductionVariants", []):
        for pool in variant.get("InstancePools") or [{**variant, "InstanceType": types.get(variant["VariantName"])}]:
            if (count := pool.get("CurrentInstanceCount", 0)) or pool["InstanceType"]:
                counted[pool["InstanceType"] or UNKNOWN_TYPE] += count
    return dict(counted)


def _instance_types(sagemaker: Any, config: str) -> dict[str, str | None]:
    """Return the instance type of each variant (None if it has no type); {} if the configuration was deleted."""
    try:
        variants = sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
    except ClientError as error:
        if is_missing(error):
            return {}
        raise
    return {variant["VariantName"]: variant.get("InstanceType") for variant in variants}


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
