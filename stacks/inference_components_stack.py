"""The stack of design 03: one inference component per model on an instance with several GPUs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import aws_cdk as cdk

from cohost.catalog.sections.designs import InferenceComponents
from cohost.endpoint.stack_outputs import KINDS_OUTPUT, kind_of
from cohost.forecast.pricing.price_list import load_prices
from cohost.hardware.images import parse_image
from cohost.hardware.instances import INSTANCES
from cohost.hardware.partitions import GPU, PROFILES, fits, needed, unknown_profiles
from cohost.routing import INFERENCE_COMPONENTS, own_component_name
from constructs_lib.endpoints.inference_components import ComponentEndpoint, schema_has_partitions
from constructs_lib.network import ContainerNetwork
from constructs_lib.storage.buckets import ModelBucket
from constructs_lib.storage.weights import weights_of
from stacks.designs import annotate, as_own
from stacks.endpoints import hosting_of
from stacks.parts import CatalogStack, add_outputs, add_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from constructs import Construct

    from cohost.catalog.models import Catalog

STACK_ID: Final = "InferenceComponentsStack"
SUFFIX: Final = "-components"

_NAME_CHARACTERS: Final = 63
"""The most characters of an inference component's name (API reference: CreateInferenceComponent)."""

_MOST_VARIABLES: Final = 16
_LEAST_CHARACTERS: Final = 2
"""The fewest characters of a variable's name in the environment of a component's container, which has at most
`_MOST_VARIABLES` variables (template reference: EnvironmentMap)."""


class InferenceComponentsStack(CatalogStack):
    """The stack of an endpoint with one inference component per model, each with GPUs of its own.

    Raises:
        CatalogError: settings of the catalog contradict each other.
        ImageError: the catalog's image cannot be read, or the region has no known registry for it.
        PriceError: the price list cannot be read.
    """

    def __init__(self, scope: Construct, construct_id: str, *, catalog: Catalog, **kwargs: Any) -> None:
        super().__init__(
            scope,
            construct_id,
            catalog=catalog,
            description="lmi-cohost: design 03, one inference component a model",
            **kwargs,
        )
        named = None if catalog.designs is None else catalog.designs.inference_components
        design = InferenceComponents() if named is None else named
        own = as_own(
            catalog,
            name=design.name or f"{catalog.endpoint.name}{SUFFIX}",
            instance_type=design.instance_type,
            initial_instance_count=design.min_instance_count,
        )
        image = parse_image(own.endpoint.image)
        bucket = ModelBucket(self, "ModelBucket", keep_on_destroy=False, kms_key=catalog.storage.kms_key)
        store = add_store(
            self, catalog, image, bucket, weights=weights_of(self, catalog), keep_on_destroy=False, bundle=False
        )
        hosting = hosting_of(own.endpoint, store, self.region)
        self.endpoint = ComponentEndpoint(
            self,
            "Endpoint",
            hosting=hosting,
            models=catalog.models,
            min_instance_count=design.min_instance_count,
            max_instance_count=design.max_instance_count,
            copy_count=design.copy_count,
            min_memory_required_in_mb=design.min_memory_required_in_mb,
            partitions=design.partitions,
            layout=design.layout,
        )
        self.endpoint.encrypt_volumes(own.endpoint.kms_key)
        if catalog.network is not None:
            # A route table takes only one S3 endpoint, and the stack of the catalog's own endpoint creates that one.
            network = catalog.network.model_copy(update={"route_tables": []})
            ContainerNetwork(self, "Network", network=network).place(self.endpoint)
        prices = load_prices()
        annotate(self, own, hosting.image, prices, multi_model=False)
        for fault in _faults(own, design):
            cdk.Annotations.of(self).add_error(f"designs.inference-components: {fault}")
        others = {
            "BucketName": bucket.bucket_name,
            "Prefix": catalog.storage.prefix,
            "Generation": store.generation,
            "ModelDataUrl": store.model_data_url,
            KINDS_OUTPUT: json.dumps({name: kind_of(one.handler, one.task) for name, one in own.models.items()}),
        }
        add_outputs(
            self, own, prices, topology=INFERENCE_COMPONENTS, models=self.endpoint.component_names, others=others
        )


def _faults(own: Catalog, design: InferenceComponents) -> list[str]:
    """Return the errors for which SageMaker would reject the design's deployment, or never finish it."""
    faults = []
    longest = max((own_component_name(own.endpoint.name, model) for model in own.models), key=len)
    if len(longest) > _NAME_CHARACTERS:
        faults.append(
            f"name: {longest!r} has {len(longest)} characters; allowed: {_NAME_CHARACTERS} for a component; fix: a "
            "shorter name"
        )
    faults += _environment_faults(own.endpoint.environment)
    faults += _partition_faults(design) if design.partitions else _gpu_faults(own, design)
    return faults


def _gpu_faults(own: Catalog, design: InferenceComponents) -> Iterator[str]:
    """Yield an error if the instances have fewer GPUs than copies, because each copy takes a whole GPU."""
    if (instance := INSTANCES.get(design.instance_type)) is None:
        return
    room, copies = instance.gpus * design.max_instance_count, len(own.models) * design.copy_count
    if copies > room:
        yield (
            f"max_instance_count: {copies} copies take a GPU each, and {design.max_instance_count} x "
            f"{design.instance_type} have {room}; allowed: as many GPUs as copies; fix: raise max_instance_count, or a "
            "type with more GPUs"
        )


def _partition_faults(design: InferenceComponents) -> Iterator[str]:
    """Yield the errors of GPU partitions that CloudFormation or SageMaker would refuse."""
    if not schema_has_partitions():
        yield (
            "partitions: CloudFormation's AWS::SageMaker::EndpointConfig and AWS::SageMaker::InferenceComponent have "
            "no property for them in this aws-cdk-lib, so the deploy would be refused; allowed: without partitions; "
            "fix: take the key out, or call SageMaker's API (CreateEndpointConfig, AcceleratorPartitionLayouts)"
        )
    if design.instance_type not in PROFILES:
        yield (
            f"instance_type: the GPUs of {design.instance_type} have no partitions that are known; allowed: "
            f"{', '.join(PROFILES)}; fix: take one of these, or take partitions out"
        )
        return
    if unknown := unknown_profiles(design.layout, design.instance_type):
        yield (
            f"partitions: {', '.join(unknown)} is not of {design.instance_type}; allowed: "
            f"{', '.join(PROFILES[design.instance_type])}; fix: take one of these"
        )
        return
    if not fits(design.layout, design.instance_type):
        yield (
            f"partitions: one of each model takes {needed(design.layout, design.instance_type)}; allowed: {GPU}, which "
            f"one GPU of {design.instance_type} has; fix: smaller partitions"
        )
    room = INSTANCES[design.instance_type].gpus * design.max_instance_count
    if design.copy_count > room:
        yield (
            f"copy_count: {design.copy_count} copies of a model take a partition each, and {design.max_instance_count} "
            f"x {design.instance_type} have {room} GPUs; allowed: {room}; fix: raise max_instance_count, or fewer "
            "copies"
        )


def _environment_faults(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield an error for environment variables that SageMaker allows for a model but not for an inference component."""
    if len(environment) > _MOST_VARIABLES:
        yield (
            f"environment: the endpoint has {len(environment)} variables; allowed: {_MOST_VARIABLES} for a component's "
            "container; fix: fewer of them under endpoint.environment"
        )
    if short := [name for name in environment if len(name) < _LEAST_CHARACTERS]:
        yield (
            f"environment: {short[0]!r} has 1 character; allowed: 2 or more for a component's container; fix: a longer "
            "name under endpoint.environment"
        )
