"""Whether the region has the instance type, and the account may run as many as the catalog asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.cleanup.orphans import instances_of
from cohost.preflight.finding import Finding, failed, passed
from cohost.scaling.instance_bounds import instance_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import boto3

    from cohost.catalog.models import Catalog

    Quotas = Callable[[], Mapping[str, float]]

QUOTA: Final = "quota"
OFFERED: Final = "instance type"
SERVICE: Final = "sagemaker"


def quotas_of(session: boto3.Session, region: str) -> dict[str, float]:
    """SageMaker's quotas "<type> for endpoint usage" in a region: the instances allowed, by type.

    Service Quotas names one for each type that hosting offers in the region (its console: Amazon SageMaker).
    """
    ending = " for endpoint usage"
    client = session.client("service-quotas", region_name=region)
    pages = client.get_paginator("list_service_quotas").paginate(ServiceCode=SERVICE)
    return {
        quota["QuotaName"].removesuffix(ending): quota["Value"]
        for page in pages
        for quota in page["Quotas"]
        if quota["QuotaName"].endswith(ending)
    }


def check_offered(quotas: Quotas, region: str, catalog: Catalog) -> Finding:
    """Whether hosting offers the instance type in the region; `quotas` asks for what `quotas_of` answers."""
    wanted = catalog.endpoint.instance_type
    offered = quotas()
    if wanted in offered:
        return passed(OFFERED, f"{wanted} is offered in {region}")
    family = wanted.rpartition(".")[0]
    near = ", ".join(sorted(name for name in offered if name.startswith(f"{family}."))) or "none of that family"
    return failed(OFFERED, f"{wanted} is not offered in {region}; allowed: {near}; fix: another type or region")


def check_quota(quotas: Quotas, session: boto3.Session, region: str, catalog: Catalog) -> Finding:
    """Whether the quota leaves room for what the catalog may scale to, beside what runs already.

    An update without a gap runs the old and the new instances side by side, so twice the fewest must fit too.
    """
    wanted = catalog.endpoint.instance_type
    quota = quotas().get(wanted, 0)
    sagemaker = session.client("sagemaker", region_name=region)
    others = sum(
        instances_of(sagemaker, sagemaker.describe_endpoint(EndpointName=one["EndpointName"])).get(wanted, 0)
        for page in sagemaker.get_paginator("list_endpoints").paginate()
        for one in page["Endpoints"]
        if one["EndpointName"] != catalog.endpoint.name
    )
    least, most = instance_bounds(catalog)
    needed = max(most, 2 * max(least, 1))
    room = f"{quota:g} allowed, {others} run elsewhere, {needed} needed ({most} at most, an update needs room for two)"
    if quota - others >= needed:
        return passed(QUOTA, f"{wanted} for endpoint usage: {room}")
    fix = f'ask for "{wanted} for endpoint usage" in Service Quotas, or remove what `cohost orphans` lists'
    return failed(QUOTA, f"{wanted} for endpoint usage: {room}; fix: {fix}")
