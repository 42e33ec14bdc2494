"""What the stacks of the comparison designs share: a catalog as if the design's endpoint were its own, and outputs."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Final

import aws_cdk as cdk

from cohost.images import locate_image, parse_image, parse_image_uri
from cohost.pricing import load_prices, price_note, today
from cohost.pricing_changes import planned_costs
from cohost.routing import find_route
from constructs_lib.fit import misfits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cohost.catalog import Catalog, Endpoint
    from cohost.images import ImageUri


_OF_MULTI_MODEL: Final = ("image-multi-model", "instance-multi-model")


def as_own(catalog: Catalog, **endpoint: object) -> Catalog:
    """The catalog with its endpoint changed; it fixes the number of instances, so nothing scales it."""
    changed = catalog.endpoint.model_copy(update={"topology": "multi-model", **endpoint})
    return catalog.model_copy(update={"endpoint": changed, "scaling": None})


def image_uri(endpoint: Endpoint, region: str) -> ImageUri:
    """The server image: the one named in full, else AWS's own for the region.

    Raises:
        ImageError: the image cannot be read, or the region has no known registry for it.
    """
    if endpoint.image_uri is not None:
        return parse_image_uri(endpoint.image_uri)
    return locate_image(endpoint.image, region)


def annotate(stack: cdk.Stack, own: Catalog, uri: ImageUri, *, multi_model: bool) -> None:
    """Say what does not fit of image, instance type and region, and whether the price is known."""
    annotations = cdk.Annotations.of(stack)
    for misfit in misfits(own.endpoint, parse_image(own.endpoint.image), uri, stack.region):
        if misfit.name in _OF_MULTI_MODEL and not multi_model:
            continue
        check = f"lmi-cohost:{misfit.name}"
        if misfit.level == "error":
            annotations.add_error(f"{misfit.message} [{check}]")
        elif misfit.name not in own.acknowledge:
            annotations.add_warning_v2(check, misfit.message)
    instance_type = own.endpoint.instance_type
    price = load_prices().find(stack.region, instance_type)
    name = "price-unknown" if price is None else "price-old"
    if (note := price_note(price, stack.region, instance_type, today())) and name not in own.acknowledge:
        annotations.add_warning_v2(f"lmi-cohost:{name}", f"designs: {note}")


def add_outputs(
    stack: cdk.Stack, own: Catalog, topology: str, models: Mapping[str, str], others: Mapping[str, str]
) -> None:
    """Add the outputs that callers find the endpoint by, as every stack has them, and what it costs."""
    outputs = {
        "EndpointName": own.endpoint.name,
        **others,
        "Region": stack.region,
        "Topology": topology,
        "Models": json.dumps(models),
        "ExampleCall": _example_call(own, topology, models, stack.region),
    }
    for name, value in outputs.items():
        cdk.CfnOutput(stack, name, value=value)
    for name, cost in planned_costs(own, load_prices(), stack.region).items():
        cdk.CfnOutput(stack, name, value=cost.value, description=cost.description)


def _example_call(own: Catalog, topology: str, models: Mapping[str, str], region: str) -> str:
    name, entry = next(iter(own.models.items()))
    body: dict[str, object] = {"inputs": "The delivery came two days early."}
    if entry.task == "zero-shot-classification":
        body["parameters"] = {"candidate_labels": ["shipping", "billing"]}
    route = find_route(endpoint_name=own.endpoint.name, topology=topology, model=name, known=models)
    return shlex.join(
        [
            *("aws", "sagemaker-runtime", "invoke-endpoint", "--region", region),
            *route.command_options(),
            *("--content-type", "application/json", "--cli-binary-format", "raw-in-base64-out"),
            *("--body", json.dumps(body), "/dev/stdout"),
        ]
    )
