"""The parts that all stacks share: checks and tags, reports of objections, the model store, the outputs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import aws_cdk as cdk

from cohost.archives.handlers import ENGINE_HANDLERS, handler_version
from cohost.catalog.checks import check_catalog
from cohost.catalog.packages import wheels_of
from cohost.catalog.serving import properties_of, requirements_for
from cohost.endpoint.invocation_payloads import call_of
from cohost.endpoint.stack_outputs import STACK_TAG
from cohost.forecast.pricing.changes import planned_costs
from cohost.routing import find_route
from constructs_lib.storage.model_store import ModelStore

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from constructs import Construct

    from cohost.catalog.models import Catalog
    from cohost.forecast.pricing.price_list import PriceList
    from cohost.hardware.images import Image
    from constructs_lib.checks.findings import Misfit
    from constructs_lib.storage.buckets import ModelBucket
    from constructs_lib.storage.weights import ModelWeights


# A new tag on an EndpointConfig or a Model, or on the stack itself, whose tags reach both, could move every deployed
# endpoint to another configuration. An inference component is found by its endpoint, and the effects of an update of
# its tags are not known.
_WITHOUT_STACK_TAG: Final = (
    "AWS::SageMaker::EndpointConfig",
    "AWS::SageMaker::Model",
    "AWS::SageMaker::InferenceComponent",
    "aws:cdk:stack",
)


class CatalogStack(cdk.Stack):
    """The base class of a catalog's stacks: it checks the catalog, and tags the stack and every resource.

    Raises:
        CatalogError: settings of the catalog contradict each other.
    """

    def __init__(self, scope: Construct, construct_id: str, *, catalog: Catalog, **kwargs: Any) -> None:
        check_catalog(catalog)
        super().__init__(scope, construct_id, tags=catalog.tags, **kwargs)
        # The tags of the stack itself reach the resources that CloudFormation can tag; the tags of resources are in the
        # template, where a review sees them.
        for key, value in catalog.tags.items():
            cdk.Tags.of(self).add(key, value)
        cdk.Tags.of(self).add(STACK_TAG, self.stack_name, exclude_resource_types=list(_WITHOUT_STACK_TAG))


def add_findings(stack: cdk.Stack, found: Iterable[Misfit], acknowledged: Container[str]) -> None:
    """Report objections as errors and warnings of the stack, except for warnings that the catalog acknowledges."""
    annotations = cdk.Annotations.of(stack)
    for misfit in found:
        check = f"lmi-cohost:{misfit.name}"
        if misfit.level == "error":
            annotations.add_error(f"{misfit.message} [{check}]")
        elif misfit.name not in acknowledged:
            annotations.add_warning_v2(check, misfit.message)


def add_store(
    stack: cdk.Stack,
    catalog: Catalog,
    image: Image,
    bucket: ModelBucket,
    *,
    weights: ModelWeights | None,
    keep_on_destroy: bool,
    bundle: bool,
    keep_generations: int = 0,
) -> ModelStore:
    """Add the model store, which publishes the archives of a catalog's models below its prefix in a bucket."""
    models = catalog.models
    return ModelStore(
        stack,
        "ModelStore",
        bucket=bucket,
        prefix=catalog.storage.prefix,
        models={name: properties_of(entry, catalog.endpoint, name) for name, entry in models.items()},
        requirements={name: requirements_for(entry, image) for name, entry in models.items()},
        handlers={
            name: f"{entry.handler}@{handler_version(entry.handler)}"
            for name, entry in models.items()
            if entry.handler in ENGINE_HANDLERS
        },
        wheels={name: wheels_of(entry.packages) for name, entry in models.items() if entry.packages},
        weights=weights,
        keep_on_destroy=keep_on_destroy,
        bundle=bundle,
        keep_generations=keep_generations,
    )


def add_outputs(
    stack: cdk.Stack,
    catalog: Catalog,
    prices: PriceList,
    *,
    topology: str,
    models: Mapping[str, str],
    others: Mapping[str, str],
    inference_component_name: str | None = None,
) -> None:
    """Add the outputs that every stack has: those by which callers find the endpoint, and its cost.

    Args:
        stack: the stack of the outputs.
        catalog: the catalog with the stack's endpoint.
        prices: the price list for the cost; outputs are plain values, so that a review sees them in `cdk diff`.
        topology: the endpoint's topology, which decides how a call names its model.
        models: the address of each model (such as TargetModel) by model name.
        others: the values of further outputs by their keys, for this stack only.
        inference_component_name: the inference component that calls name; None if calls name none.
    """
    name, entry = next(iter(catalog.models.items()))
    route = find_route(
        endpoint_name=catalog.endpoint.name,
        topology=topology,
        model=name,
        known=models,
        inference_component_name=inference_component_name,
    )
    outputs = {
        "EndpointName": catalog.endpoint.name,
        **others,
        "Region": stack.region,
        "Topology": topology,
        "Models": json.dumps(models),
        **({"InferenceComponentName": inference_component_name} if inference_component_name else {}),
        "ExampleCall": call_of(route, entry.task, stack.region),
    }
    for key, value in outputs.items():
        cdk.CfnOutput(stack, key, value=value)
    for key, cost in planned_costs(catalog, prices, stack.region).items():
        cdk.CfnOutput(stack, key, value=cost.value, description=cost.description)
