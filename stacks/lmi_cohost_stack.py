"""The stack of a catalog's own endpoint: bucket, archives, endpoint, and the outputs by which callers find it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import aws_cdk as cdk

from cohost.endpoint.stack_outputs import KINDS_OUTPUT, WEIGHTS_OUTPUT, kind_of
from cohost.forecast.pricing.price_list import load_prices
from cohost.hardware.images import parse_image
from cohost.routing import SCALE_TO_ZERO, addresses, component_name
from constructs_lib.checks.catalog import catalog_misfits
from constructs_lib.checks.findings import misfits
from constructs_lib.monitoring.spend_guard import SpendGuard
from constructs_lib.network import ContainerNetwork
from constructs_lib.storage.buckets import ModelBucket
from constructs_lib.storage.weights import weights_of
from stacks.endpoints import add_endpoint, hosting_of
from stacks.parts import CatalogStack, add_findings, add_outputs, add_store
from stacks.watching import add_data_capture, add_expiry, add_guardrails, add_monitoring

if TYPE_CHECKING:
    from collections.abc import Mapping

    from constructs import Construct

    from cohost.catalog.models import Catalog
    from cohost.forecast.plan.profiles import Profile
    from cohost.hardware.images import Image, ImageUri
    from constructs_lib.storage.model_store import ModelStore

STACK_ID: Final = "LmiCohostStack"


class LmiCohostStack(CatalogStack):
    """The stack of one endpoint that serves all models of a catalog.

    Another topology needs another endpoint name. Under the same name, the update fails and is rolled back, because
    SageMaker never changes an endpoint from models to inference components, or the reverse.

    Args:
        catalog: the catalog to deploy.
        profiles: the sizes of the models by model id. Without profiles the models' memory is not checked.
        **kwargs: further arguments of `cdk.Stack`.

    Raises:
        CatalogError: settings of the catalog contradict each other.
        ImageError: the catalog's image cannot be read, or the region has no known registry for it.
        PriceError: the price list cannot be read.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        catalog: Catalog,
        profiles: Mapping[str, Profile] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            catalog=catalog,
            description="lmi-cohost: several encoder models on one SageMaker endpoint",
            termination_protection=catalog.termination_protection,
            **kwargs,
        )
        image = parse_image(catalog.endpoint.image)
        keep = catalog.storage.on_destroy == "keep"
        bucket = ModelBucket(self, "ModelBucket", keep_on_destroy=keep, kms_key=catalog.storage.kms_key)
        store = add_store(
            self,
            catalog,
            image,
            bucket,
            weights=(weights := weights_of(self, catalog)),
            keep_on_destroy=keep,
            keep_generations=catalog.storage.keep_generations,
            bundle=catalog.endpoint.topology == SCALE_TO_ZERO,
        )
        self._prices = load_prices()
        hosting = hosting_of(catalog.endpoint, store, self.region)
        self.endpoint = add_endpoint(self, catalog, hosting)
        if catalog.network is not None:
            ContainerNetwork(self, "Network", network=catalog.network).place(self.endpoint)
        self.monitoring = add_monitoring(self, catalog, endpoint=self.endpoint, prices=self._prices)
        add_data_capture(self, catalog, endpoint=self.endpoint)
        add_guardrails(catalog, endpoint=self.endpoint, monitoring=self.monitoring)
        add_expiry(self, catalog, endpoint=self.endpoint, topic=self.monitoring.topic)
        if (budget := catalog.budget) is not None:
            SpendGuard(self, "Budget", monthly_usd=budget.monthly_usd, email=budget.email, tags=catalog.tags)
        self._annotate(catalog, image, hosting.image, profiles or {})
        self._add_outputs(catalog, bucket, store)
        if weights is not None and weights.bucket_name is not None:
            cdk.CfnOutput(self, WEIGHTS_OUTPUT, value=weights.bucket_name)

    def _annotate(self, catalog: Catalog, image: Image, uri: ImageUri, profiles: Mapping[str, Profile]) -> None:
        found = [
            *misfits(catalog.endpoint, image, uri, self.region),
            *catalog_misfits(catalog, image, profiles, self._prices, self.region),
        ]
        add_findings(self, found, catalog.acknowledge)
        for warning in catalog.warnings:
            cdk.Annotations.of(self).add_warning_v2(f"lmi-cohost:{warning.partition(':')[0]}", warning)

    def _add_outputs(self, catalog: Catalog, bucket: ModelBucket, store: ModelStore) -> None:
        topology = catalog.endpoint.topology
        kinds = {name: kind_of(entry.handler, entry.task) for name, entry in catalog.models.items()}
        add_outputs(
            self,
            catalog,
            self._prices,
            topology=topology,
            models=addresses(topology, catalog.models),
            others={
                "BucketName": bucket.bucket_name,
                "Prefix": catalog.storage.prefix,
                "Generation": store.generation,
                "ModelDataUrl": store.model_data_url,
                KINDS_OUTPUT: json.dumps(kinds),
            },
            inference_component_name=component_name(catalog.endpoint.name) if topology == SCALE_TO_ZERO else None,
        )
