"""The endpoint of a catalog, in whichever topology the catalog asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.catalog.serving import inference_ami_version
from cohost.routing import SCALE_TO_ZERO, component_name
from constructs_lib.endpoints.multi_model import MultiModelEndpoint
from constructs_lib.endpoints.scale_to_zero import ScaleToZeroEndpoint

if TYPE_CHECKING:
    import aws_cdk as cdk

    from cohost.catalog.models import Catalog
    from cohost.hardware.images import Image, ImageUri
    from constructs_lib.storage.model_store import ModelStore

# The same for both, so that another topology under one name is an update, which SageMaker refuses, and no deletion.
ENDPOINT_ID: Final = "Endpoint"


def add_endpoint(
    stack: cdk.Stack, catalog: Catalog, *, store: ModelStore, image: Image, uri: ImageUri
) -> MultiModelEndpoint | ScaleToZeroEndpoint:
    """Add the endpoint that a catalog states to its stack."""
    hosted = _hosted(stack, catalog, store=store, image=image, uri=uri)
    hosted.encrypt_volumes(catalog.endpoint.kms_key)
    return hosted


def _hosted(
    stack: cdk.Stack, catalog: Catalog, *, store: ModelStore, image: Image, uri: ImageUri
) -> MultiModelEndpoint | ScaleToZeroEndpoint:
    endpoint, scaling = catalog.endpoint, catalog.scaling
    # The catalog of a scale-to-zero endpoint always has a scaling section, its own or the default.
    if endpoint.topology == SCALE_TO_ZERO and scaling is not None:
        return ScaleToZeroEndpoint(
            stack,
            ENDPOINT_ID,
            endpoint_name=endpoint.name,
            component_name=component_name(endpoint.name),
            store=store,
            image=uri,
            instance_type=endpoint.instance_type,
            inference_ami_version=inference_ami_version(endpoint, image),
            model_data_download_timeout_in_seconds=endpoint.model_data_download_timeout_in_seconds,
            container_startup_health_check_timeout_in_seconds=(
                endpoint.container_startup_health_check_timeout_in_seconds
            ),
            environment=endpoint.environment,
            copy_count=endpoint.copy_count,
            scaling=scaling,
        )
    return MultiModelEndpoint(
        stack,
        ENDPOINT_ID,
        endpoint_name=endpoint.name,
        store=store,
        image=uri,
        instance_type=endpoint.instance_type,
        initial_instance_count=endpoint.initial_instance_count,
        inference_ami_version=inference_ami_version(endpoint, image),
        model_data_download_timeout_in_seconds=endpoint.model_data_download_timeout_in_seconds,
        container_startup_health_check_timeout_in_seconds=endpoint.container_startup_health_check_timeout_in_seconds,
        model_cache_setting=endpoint.model_cache_setting,
        environment=endpoint.environment,
        scaling=scaling,
    )
