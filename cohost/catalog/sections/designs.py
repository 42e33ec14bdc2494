"""The catalog's section `designs`: other ways to serve the same models for comparison, each in a separate stack.

A design is built only if the catalog names it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field

from cohost.catalog.sections import rules
from cohost.catalog.sections.rules import IMAGE, INSTANCE_TYPE, Settings

Precision = Literal["int8", "fp32"]
Serving = Literal["translator", "handler"]

DEFAULT_ARCHIVES: Final = "dist/onnx"
PARTITION: Final = r"^mig-[0-9]+g\.[0-9]+gb$"
"""The form of a partition's name. SageMaker takes no profile with the suffixes +me, +gfx and the like (developer guide,
"Create an endpoint with GPU partitions")."""


class _Settings(Settings):
    model_config = ConfigDict(populate_by_name=True)


class OnnxModel(_Settings):
    """The settings of design cpu-onnx that one model overrides."""

    precision: Precision | None = Field(default=None, description="int8 or fp32")
    serving: Serving | None = Field(default=None, description="translator or handler")


class CpuOnnx(_Settings):
    """Design 02: a multi-model endpoint that serves the models as ONNX on a CPU instance.

    `serving: translator` is DJL's OnnxRuntime engine with its Java translators, `serving: handler` a Python handler
    that runs onnxruntime. If `serving` is left out, each model gets the translator if DJL's translators support the
    calls of the model's task, else the handler.
    """

    name: Annotated[str, AfterValidator(rules.check_endpoint_name)] | None = Field(
        default=None, description=rules.SAGEMAKER_NAME
    )
    instance_type: str = Field(
        default="ml.c7i.2xlarge", pattern=INSTANCE_TYPE, description="a SageMaker CPU instance type"
    )
    initial_instance_count: int = Field(default=1, ge=1, le=100, description="1 to 100 instances")
    image: str = Field(
        default="djl-inference:0.36.0-cpu-full",
        pattern=IMAGE,
        description="repository:tag of a cpu-full image, such as djl-inference:0.36.0-cpu-full",
    )
    archives: str = Field(
        default=DEFAULT_ARCHIVES, min_length=1, description="the folder that `cohost export-onnx` writes to"
    )
    precision: Precision = Field(default="int8", description="int8 or fp32")
    serving: Serving | None = Field(default=None, description="translator or handler; left out: by task")
    overrides: dict[str, OnnxModel] = Field(default_factory=dict, description="precision, serving by model name")


class InferenceComponents(_Settings):
    """Design 03: one inference component per model on an instance with several GPUs.

    With `partitions`, each model's copies take partitions of GPUs instead of whole GPUs. Every GPU is divided in the
    same way, into one partition per model.
    """

    name: Annotated[str, AfterValidator(rules.check_endpoint_name)] | None = Field(
        default=None, description=rules.SAGEMAKER_NAME
    )
    instance_type: str = Field(
        default="ml.g6.12xlarge", pattern=INSTANCE_TYPE, description="a SageMaker instance type with GPUs"
    )
    min_instance_count: int = Field(default=1, ge=1, le=100, description="1 to 100 instances")
    max_instance_count: int = Field(default=2, ge=1, le=100, description="1 to 100 instances")
    copy_count: int = Field(default=1, ge=1, le=100, description="1 to 100 copies of each model")
    min_memory_required_in_mb: int = Field(
        default=1024, ge=128, le=4_000_000, description="128 or more mebibytes of host memory for a copy"
    )
    partitions: dict[str, Annotated[str, Field(pattern=PARTITION)]] = Field(
        default_factory=dict, description="a GPU partition such as mig-1g.10gb for each model, by model name"
    )

    @property
    def layout(self) -> list[str]:
        """Return the partitions of each GPU, sorted, because SageMaker treats another order of them as a change."""
        return sorted(self.partitions.values())


class Designs(_Settings):
    """The catalog's section `designs`: the comparison designs that are built beside the catalog's own stack."""

    cpu_onnx: CpuOnnx | None = Field(
        default=None,
        alias="cpu-onnx",
        description="name, instance_type, initial_instance_count, image, archives, precision, serving, overrides",
    )
    inference_components: InferenceComponents | None = Field(
        default=None,
        alias="inference-components",
        description=(
            "name, instance_type, min_instance_count, max_instance_count, copy_count, min_memory_required_in_mb, "
            "partitions"
        ),
    )
