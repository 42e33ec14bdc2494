"""Helpers shared by all stacks: tags, check results, the model store, and an example call as an output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk

from cohost.archives.handlers import BATCHED, handler_version
from cohost.catalog.packages import wheels_of
from cohost.catalog.serving import properties_of, requirements_for
from cohost.endpoint.invocation_payloads import call_of
from cohost.routing import find_route
from constructs_lib.storage.model_store import ModelStore

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from cohost.catalog.models import Catalog
    from cohost.hardware.images import Image
    from constructs_lib.checks.findings import Misfit
    from constructs_lib.storage.buckets import ModelBucket
    from constructs_lib.storage.weights import ModelWeights


def add_tags(stack: cdk.Stack, tags: Mapping[str, str]) -> None:
    """Tag every resource of a stack.

    The tags of the stack itself reach the resources that CloudFormation can tag; these are in the template, where a
    review sees them.
    """
    for key, value in tags.items():
        cdk.Tags.of(stack).add(key, value)


def add_findings(stack: cdk.Stack, found: Iterable[Misfit], acknowledged: Container[str]) -> None:
    """Report misfits as the stack's errors and warnings; an acknowledged warning is left out."""
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
    """Add the archives of a catalog's models for an image, published below the catalog's prefix of a bucket."""
    models = catalog.models
    return ModelStore(
        stack,
        "ModelStore",
        bucket=bucket,
        prefix=catalog.storage.prefix,
        models={name: properties_of(entry) for name, entry in models.items()},
        requirements={name: requirements_for(entry, image) for name, entry in models.items()},
        handlers={
            name: f"{entry.handler}@{handler_version(entry.handler)}"
            for name, entry in models.items()
            if entry.handler == BATCHED
        },
        wheels={name: wheels_of(entry.packages) for name, entry in models.items() if entry.packages},
        weights=weights,
        keep_on_destroy=keep_on_destroy,
        bundle=bundle,
        keep_generations=keep_generations,
    )


def example_call(
    catalog: Catalog,
    region: str,
    *,
    topology: str,
    known: Iterable[str] | Mapping[str, str],
    inference_component_name: str | None = None,
) -> str:
    """Return a call of the catalog's first model to paste into a shell; the other arguments are `find_route`'s."""
    name, entry = next(iter(catalog.models.items()))
    route = find_route(
        endpoint_name=catalog.endpoint.name,
        topology=topology,
        model=name,
        known=known,
        inference_component_name=inference_component_name,
    )
    return call_of(route, entry.task, region)
