"""Would SageMaker take the update of an endpoint that is there already?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from cohost.deployment import outputs_of
from cohost.expiry import OUTPUT
from cohost.preflight.finding import Finding, failed, passed
from cohost.routing import MULTI_MODEL, SCALE_TO_ZERO

if TYPE_CHECKING:
    import boto3

    from cohost.catalog.models import Catalog

ENDPOINT: Final = "endpoint"

_NOT_THERE: Final = "ValidationException"


def check_endpoint(session: boto3.Session, region: str, catalog: Catalog) -> Finding:
    """Whether an endpoint of the catalog's name is of its topology, and may have its instance type.

    SageMaker updates no endpoint of models to one of components, or back, and changes no instance type of a variant
    that Application Auto Scaling has registered (AWS: update endpoints that use auto scaling).
    """
    name, wanted = catalog.endpoint.name, catalog.endpoint
    variant = _variant_of(session, region, name)
    if variant is None and (stack := _stack_that_had(session, region, name)) is not None:
        return failed(
            ENDPOINT,
            f"{name!r} of stack {stack!r} has ended, and CloudFormation believes that it exists: it could neither "
            f"update it nor go back; fix: cohost expire 8h --stack {stack}, then deploy",
        )
    if variant is None:
        return passed(ENDPOINT, f"there is no endpoint {name!r} yet")
    topology = SCALE_TO_ZERO if variant.get("ModelName") is None else MULTI_MODEL
    if topology != wanted.topology:
        return failed(
            ENDPOINT,
            f"{name!r} is a {topology} endpoint, the catalog says {wanted.topology}, and SageMaker updates no endpoint "
            "from one to the other; fix: another endpoint.name, with which the stack makes the new endpoint before it "
            "removes this one, or cdk destroy first",
        )
    now = variant.get("InstanceType")
    if topology == MULTI_MODEL and now != wanted.instance_type and _is_scaled(session, region, name, variant):
        return failed(
            ENDPOINT,
            f"{name!r} runs on {now} and scales, and SageMaker changes no instance type while it does; fix: deploy "
            f"without `scaling` first, then with instance_type {wanted.instance_type}; or another endpoint.name",
        )
    return passed(ENDPOINT, f"{name!r} is a {topology} endpoint on {now}, and can be updated")


def _variant_of(session: boto3.Session, region: str, name: str) -> dict[str, Any] | None:
    """The production variant of an endpoint, as its configuration states it; None if there is no such endpoint."""
    client = session.client("sagemaker", region_name=region)
    try:
        config = client.describe_endpoint(EndpointName=name)["EndpointConfigName"]
    except ClientError as error:
        if error.response["Error"].get("Code") == _NOT_THERE:
            return None
        raise
    return dict(client.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"][0])


def _stack_that_had(session: boto3.Session, region: str, name: str) -> str | None:
    """The stack whose endpoint of this name ends by itself; None if no stack has one."""
    client = session.client("cloudformation", region_name=region)
    for page in client.get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            outputs = outputs_of(stack)
            if outputs.get("EndpointName") == name and OUTPUT in outputs:
                return str(stack["StackName"])
    return None


def _is_scaled(session: boto3.Session, region: str, name: str, variant: dict[str, Any]) -> bool:
    """Whether Application Auto Scaling has registered the variant."""
    client = session.client("application-autoscaling", region_name=region)
    resource = f"endpoint/{name}/variant/{variant['VariantName']}"
    found = client.describe_scalable_targets(ServiceNamespace="sagemaker", ResourceIds=[resource])
    return bool(found["ScalableTargets"])
