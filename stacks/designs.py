"""What the stacks of the comparison designs share: a catalog as if the design's endpoint were its own, and outputs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import aws_cdk as cdk

from cohost.images import parse_image
from cohost.pricing import load_prices, price_note, today
from cohost.pricing_changes import planned_costs
from constructs_lib.fit import misfits
from stacks.parts import example_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cohost.catalog import Catalog
    from cohost.images import ImageUri


_OF_MULTI_MODEL: Final = ("image-multi-model", "instance-multi-model")


def as_own(catalog: Catalog, **endpoint: object) -> Catalog:
    """The catalog with its endpoint changed; it fixes the number of instances, so nothing scales it."""
    changed = catalog.endpoint.model_copy(update={"topology": "multi-model", **endpoint})
    return catalog.model_copy(update={"endpoint": changed, "scaling": None})


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
        "ExampleCall": example_call(own, stack.region, topology=topology, known=models),
    }
    for name, value in outputs.items():
        cdk.CfnOutput(stack, name, value=value)
    for name, cost in planned_costs(own, load_prices(), stack.region).items():
        cdk.CfnOutput(stack, name, value=cost.value, description=cost.description)
