"""What an endpoint is to run: a snapshot of its configuration and of the models that the configuration names.

A snapshot, because deleting the model or the configuration later does not touch running instances, and because an
instance that is replaced must come back as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cohost.instances import INSTANCES
from local_aws.sagemaker.container_rules import MULTI_MODEL, S3Location
from local_aws.sagemaker.models import container_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.sagemaker.registry import Collection, Resource

_DEFAULT_STARTUP_TIMEOUT_S = 600


@dataclass(frozen=True, kw_only=True)
class VariantPlan:
    """One production variant: its instances, and the container that each of them runs.

    `model_data` is the prefix of a multi-model container or the archive of another; None for a container without.
    `cache_models` is False where the model's MultiModelConfig turns caching off.
    """

    name: str
    instance_type: str
    instance_count: int
    weight: float
    image: str
    multi_model: bool
    model_data: S3Location | None
    cache_models: bool
    environment: Mapping[str, str]
    startup_timeout_s: float

    @property
    def memory_mb(self) -> int | None:
        """Memory in MiB that models may take: the smaller of the host's and the GPUs', since DJL asks both."""
        if (instance := INSTANCES.get(self.instance_type)) is None:
            return None
        gpu = instance.gpus * instance.gpu_memory_mib
        return min(instance.memory_mib, gpu) if gpu else instance.memory_mib


def plan_of(config: Resource, models: Collection[Resource]) -> tuple[VariantPlan, ...]:
    """The variants of an endpoint configuration.

    Raises:
        ValidationException: a model that the configuration names is gone.
    """
    return tuple(_variant(variant, models) for variant in config.definition["ProductionVariants"])


def _variant(variant: dict[str, Any], models: Collection[Resource]) -> VariantPlan:
    container = container_of(models.get(variant["ModelName"]).definition)
    multi_model = container.get("Mode") == MULTI_MODEL
    url = container.get("ModelDataUrl")
    environment = dict(container.get("Environment") or {})
    if multi_model:
        # SageMaker sets it for every multi-model container; DJL Serving reads it (wlm ModelInfo, 0.36.0).
        environment["SAGEMAKER_MULTI_MODEL"] = "true"
    return VariantPlan(
        name=variant["VariantName"],
        instance_type=variant["InstanceType"],
        instance_count=variant["InitialInstanceCount"],
        weight=variant["InitialVariantWeight"],
        image=container["Image"],
        multi_model=multi_model,
        model_data=None if url is None else S3Location.parse(url),
        cache_models=(container.get("MultiModelConfig") or {}).get("ModelCacheSetting") != "Disabled",
        environment=environment,
        startup_timeout_s=variant.get("ContainerStartupHealthCheckTimeoutInSeconds", _DEFAULT_STARTUP_TIMEOUT_S),
    )
