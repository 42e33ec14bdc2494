"""The endpoint of a catalog, in the topology that the catalog states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.catalog.serving import image_of, inference_ami_version
from cohost.hardware.images import parse_image
from cohost.routing import SCALE_TO_ZERO, component_name
from constructs_lib.endpoints.hosted_endpoint import Hosting
from constructs_lib.endpoints.multi_model import MultiModelEndpoint
from constructs_lib.endpoints.scale_to_zero import ScaleToZeroEndpoint

if TYPE_CHECKING:
    import aws_cdk as cdk

    from cohost.catalog.models import Catalog, Endpoint
    from constructs_lib.endpoints.hosted_endpoint import Archives

# The same id in both topologies, so that another topology under the same endpoint name is an update, which SageMaker
# refuses, and not a deletion.
ENDPOINT_ID: Final = "Endpoint"


def hosting_of(endpoint: Endpoint, store: Archives, region: str) -> Hosting:
    """Return the settings of a catalog's endpoint that are the same in every topology.

    Raises:
        ImageError: the image cannot be read, or the region has no known registry for it.
    """
    return Hosting(
        endpoint_name=endpoint.name,
        store=store,
        image=image_of(endpoint, region),
        instance_type=endpoint.instance_type,
        inference_ami_version=inference_ami_version(endpoint, parse_image(endpoint.image)),
        model_data_download_timeout_in_seconds=endpoint.model_data_download_timeout_in_seconds,
        container_startup_health_check_timeout_in_seconds=endpoint.container_startup_health_check_timeout_in_seconds,
        environment=endpoint.environment,
    )


def add_endpoint(stack: cdk.Stack, catalog: Catalog, hosting: Hosting) -> MultiModelEndpoint | ScaleToZeroEndpoint:
    """Add the endpoint of a catalog, in its topology, to a stack, and encrypt its volumes."""
    hosted = _hosted(stack, catalog, hosting)
    hosted.encrypt_volumes(catalog.endpoint.kms_key)
    return hosted


def _hosted(stack: cdk.Stack, catalog: Catalog, hosting: Hosting) -> MultiModelEndpoint | ScaleToZeroEndpoint:
    endpoint, scaling = catalog.endpoint, catalog.scaling
    # The catalog of a scale-to-zero endpoint always has a scaling section, its own or the default.
    if endpoint.topology == SCALE_TO_ZERO and scaling is not None:
        return ScaleToZeroEndpoint(
            stack,
            ENDPOINT_ID,
            hosting=hosting,
            component_name=component_name(endpoint.name),
            copy_count=endpoint.copy_count,
            scaling=scaling,
        )
    return MultiModelEndpoint(
        stack,
        ENDPOINT_ID,
        hosting=hosting,
        initial_instance_count=endpoint.initial_instance_count,
        model_cache_setting=endpoint.model_cache_setting,
        scaling=scaling,
    )
