"""The stack of design 02: the catalog's models as ONNX on a CPU instance, in multi-model mode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aws_cdk as cdk

from cohost.designs.onnx.archive import find_archive
from cohost.designs.onnx.recipe import cpu_design, recipe_for
from cohost.forecast.pricing.price_list import load_prices
from cohost.hardware.images import parse_image
from cohost.routing import CPU_ONNX
from constructs_lib.network import ContainerNetwork
from constructs_lib.storage.weights import GENERATION, PREFIX, OnnxArchives
from stacks.designs import annotate, as_own
from stacks.endpoints import add_endpoint, hosting_of
from stacks.parts import CatalogStack, add_outputs

if TYPE_CHECKING:
    from constructs import Construct

    from cohost.catalog.models import Catalog

STACK_ID: Final = "CpuOnnxStack"
SUFFIX: Final = "-cpu-onnx"

_ENGINE: Final = "onnxruntime"


class CpuOnnxStack(CatalogStack):
    """The stack of one endpoint without a GPU that serves the models as `cohost export-onnx` has exported them.

    Raises:
        CatalogError: settings of the catalog contradict each other.
        OnnxError: a model is not exported yet, or was exported with other settings than the catalog's present ones.
        ImageError: the design's image cannot be read, or the region has no known registry for it.
        PriceError: the price list cannot be read.
    """

    def __init__(self, scope: Construct, construct_id: str, *, catalog: Catalog, **kwargs: Any) -> None:
        super().__init__(
            scope,
            construct_id,
            catalog=catalog,
            description="lmi-cohost: design 02, the models as ONNX on a CPU endpoint",
            **kwargs,
        )
        design = cpu_design(catalog)
        own = as_own(
            catalog,
            name=design.name or f"{catalog.endpoint.name}{SUFFIX}",
            instance_type=design.instance_type,
            initial_instance_count=design.initial_instance_count,
            image=design.image,
            image_uri=None,
            inference_ami_version="none",
        )
        folder = Path(design.archives)
        archives = OnnxArchives(
            self, "Archives", archives=[find_archive(folder, recipe_for(name, catalog)) for name in catalog.models]
        )
        hosting = hosting_of(own.endpoint, archives, self.region)
        self.endpoint = add_endpoint(self, own, hosting)
        if catalog.network is not None:
            ContainerNetwork(self, "Network", network=catalog.network).place(self.endpoint)
        prices = load_prices()
        annotate(self, own, hosting.image, prices, multi_model=True)
        if _ENGINE not in parse_image(design.image).backends:
            cdk.Annotations.of(self).add_error(
                f"designs.cpu-onnx.image: {design.image!r} has no OnnxRuntime engine; allowed: cpu-full images of "
                "djl-inference; fix: image: djl-inference:0.36.0-cpu-full"
            )
        others = {
            "BucketName": archives.bucket_name,
            "Prefix": PREFIX,
            "Generation": GENERATION,
            "ModelDataUrl": archives.model_data_url,
        }
        add_outputs(self, own, prices, topology=CPU_ONNX, models=archives.target_models, others=others)
