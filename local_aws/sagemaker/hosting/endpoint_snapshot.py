"""The snapshot of an endpoint's configuration, and of the models that the configuration names.

Endpoints run from a snapshot for two reasons: deleting the model or the configuration later must not change running
instances, and the replacement of an instance must equal the instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cohost.hardware.instances import INSTANCES
from cohost.hardware.partitions import memory_mib_of
from local_aws.kit.errors import ValidationException
from local_aws.sagemaker.errors import unsupported
from local_aws.sagemaker.model_cache.disk import S3Location
from local_aws.sagemaker.telemetry.data_capture import CapturePlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.kit.named_resources import Collection, Resource


_DEFAULT_STARTUP_TIMEOUT_S = 600


@dataclass(frozen=True, kw_only=True)
class ContainerPlan:
    """The plan of a container: every setting that does not depend on the container's instance.

    `model_data` is the S3 prefix of a multi-model container, or the archive of any other container; None without a
    ModelDataUrl. `cache_models` is False if the model's MultiModelConfig turns caching off. `memory_mb` is the memory
    that the container's models may take, in MiB; None if the instance type is not known. `role` is the ARN of the
    execution role, or None.
    """

    image: str
    role: str | None
    multi_model: bool
    model_data: S3Location | None
    cache_models: bool
    environment: Mapping[str, str]
    startup_timeout_s: float
    memory_mb: int | None


@dataclass(frozen=True, kw_only=True)
class ManagedScaling:
    """The bounds of the number of a variant's instances (AWS API reference: ManagedInstanceScaling)."""

    minimum: int
    maximum: int


@dataclass(frozen=True, kw_only=True)
class VariantPlan:
    """The plan of a production variant.

    `container` runs on each of the variant's instances; None for a variant made of inference components. `scaling`
    bounds the number of instances; None if this number is fixed. `role` is the ARN of the endpoint configuration's
    execution role, which variants made of inference components need. `partitions` is the layout of each GPU; empty if
    GPUs are whole. `capture` is the configuration of data capture for the variant's calls.
    """

    name: str
    instance_type: str
    instance_count: int
    weight: float
    container: ContainerPlan | None
    scaling: ManagedScaling | None
    role: str | None
    partitions: tuple[str, ...] = ()
    capture: CapturePlan | None = None


def plan_of(config: Resource, models: Collection[Resource]) -> tuple[VariantPlan, ...]:
    """Make the plans of an endpoint configuration's variants.

    Raises:
        ValidationException: a model that the configuration names was deleted.
    """
    definition = config.definition
    return tuple(_variant(variant, definition, models) for variant in definition["ProductionVariants"])


def container_plan(
    definition: Mapping[str, Any], *, role: str | None, memory_mb: int | None, startup_timeout_s: float | None
) -> ContainerPlan:
    """Make the plan of a container from a ContainerDefinition of CreateModel."""
    multi_model = definition.get("Mode") == MULTI_MODEL
    url = definition.get("ModelDataUrl")
    environment = dict(definition.get("Environment") or {})
    if multi_model:
        # SageMaker sets this variable for every multi-model container; DJL Serving reads it (wlm ModelInfo, 0.36.0).
        environment["SAGEMAKER_MULTI_MODEL"] = "true"
    return ContainerPlan(
        image=definition["Image"],
        role=role,
        multi_model=multi_model,
        model_data=None if url is None else S3Location.parse(url),
        cache_models=(definition.get("MultiModelConfig") or {}).get("ModelCacheSetting") != "Disabled",
        environment=environment,
        startup_timeout_s=_DEFAULT_STARTUP_TIMEOUT_S if startup_timeout_s is None else startup_timeout_s,
        memory_mb=memory_mb,
    )


def model_memory_mb(instance_type: str, gpus: int | None = None, partition: str | None = None) -> int | None:
    """Return the memory, in MiB, that models may take: the smaller of host and GPU memory, since DJL checks both.

    `gpus` is the number of GPUs that the container gets, or None for all GPUs of the instance; `partition` is the GPU
    partition that the container gets instead of whole GPUs. The memory of an unknown instance type is None.
    """
    if (instance := INSTANCES.get(instance_type)) is None:
        return None
    gpu = (instance.gpus if gpus is None else gpus) * instance.gpu_memory_mib
    if partition is not None:
        gpu = memory_mib_of(partition)
    return min(instance.memory_mib, gpu) if gpu else instance.memory_mib


def _variant(variant: dict[str, Any], definition: Mapping[str, Any], models: Collection[Resource]) -> VariantPlan:
    role = definition.get("ExecutionRoleArn")
    container = None if variant.get("ModelName") is None else _container(variant, models)
    return VariantPlan(
        name=variant["VariantName"],
        instance_type=variant["InstanceType"],
        instance_count=variant["InitialInstanceCount"],
        weight=variant["InitialVariantWeight"],
        container=container,
        scaling=_scaling(variant),
        role=role,
        partitions=_layout(variant),
        capture=CapturePlan.of(definition.get("DataCaptureConfig"), role if container is None else container.role),
    )


def _layout(variant: dict[str, Any]) -> tuple[str, ...]:
    layouts = variant.get("AcceleratorPartitionLayouts") or [{}]
    return tuple(layouts[0].get("AcceleratorPartitionTypes") or ())


def _container(variant: dict[str, Any], models: Collection[Resource]) -> ContainerPlan:
    model = models.get(variant["ModelName"]).definition
    return container_plan(
        container_of(model),
        role=model.get("ExecutionRoleArn"),
        memory_mb=model_memory_mb(variant["InstanceType"]),
        startup_timeout_s=variant.get("ContainerStartupHealthCheckTimeoutInSeconds"),
    )


def _scaling(variant: dict[str, Any]) -> ManagedScaling | None:
    scaling, initial = variant.get("ManagedInstanceScaling") or {}, variant["InitialInstanceCount"]
    if scaling.get("Status") != "ENABLED":
        return None
    return ManagedScaling(
        minimum=scaling.get("MinInstanceCount", initial), maximum=scaling.get("MaxInstanceCount", initial)
    )


MULTI_MODEL = "MultiModel"


def container_of(definition: dict[str, Any]) -> dict[str, Any]:
    """Return the one container in a request of CreateModel.

    Raises:
        ValidationException: the request has no container, or several (an inference pipeline, which is not emulated).
    """
    containers = [*([definition["PrimaryContainer"]] if definition.get("PrimaryContainer") else [])]
    containers += definition.get("Containers") or []
    if not containers:
        raise ValidationException("PrimaryContainer: a model needs a container")
    if len(containers) > 1 or definition.get("InferenceExecutionConfig"):
        raise unsupported("A model of several containers")
    container: dict[str, Any] = containers[0]
    return container
