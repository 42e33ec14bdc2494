"""Checks that one container can hold and start all models at once, as topology scale-to-zero requires.

A model that cannot be loaded at start-up ends the server (DJL Serving 0.36.0, recordings 15 and 16). So an error that
would affect one model of a multi-model endpoint keeps every model of a scale-to-zero endpoint from being served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.archives.verify import startup_faults
from cohost.catalog.serving import files_of
from cohost.forecast.plan.capacity import first_change
from cohost.routing import SCALE_TO_ZERO
from constructs_lib.checks.findings import Misfit, error
from constructs_lib.endpoints.scale_to_zero import STARTUP_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cohost.catalog.models import Catalog, ModelEntry
    from cohost.forecast.plan.memory import MemoryPlan, ModelPlan
    from cohost.hardware.images import Image


_OTHER_MODEL: Final = ("HF_MODEL_ID", "OPTION_MODEL_ID", "SERVING_MODEL_STORE", "MODEL_STORE")
"""Environment variables that make DJL Serving look for models elsewhere (LMI containers: deployment guide)."""

_ANY_BUCKET: Final = "named-at-deploy"


def component_misfits(catalog: Catalog, image: Image) -> Iterator[Misfit]:
    """Yield an objection for each setting that would keep a scale-to-zero endpoint's container from starting."""
    if catalog.endpoint.topology != SCALE_TO_ZERO:
        return
    yield from _environment_misfits(catalog)
    for name, entry in catalog.models.items():
        if entry.tensor_parallel_degree > 1:
            yield error(
                "component-accelerators",
                f"models.{name}.tensor_parallel_degree: {entry.tensor_parallel_degree} GPUs for a worker, where a copy "
                "of the component has one, so the server would not start; allowed: 1 with topology scale-to-zero; fix: "
                "tensor_parallel_degree: 1, or topology: multi-model",
            )
    models = {
        name: files_of(entry, image, _ANY_BUCKET, endpoint=catalog.endpoint, name=name)
        for name, entry in catalog.models.items()
    }
    for fault in startup_faults(models):
        yield error("startup-model", f"{fault} (as it is, the server ends at its start, and all models with it)")


def startup_memory_misfits(catalog: Catalog, plan: MemoryPlan) -> Iterator[Misfit]:
    """Yield errors if a plan's models do not all fit at once: a scale-to-zero endpoint unloads no model for another."""
    for fits, what, used, limit in (
        (plan.gpu_fits, f"one {plan.instance.gpu_name}", plan.gpu_used_mib, plan.gpu_usable_mib),
        (plan.host_fits, "the host's memory", plan.host_used_mib, plan.instance.memory_mib),
    ):
        if not fits:
            yield error(
                "startup-memory",
                f"models: all workers take {used:,.0f} of {limit:,.0f} MiB of {what}, and topology {SCALE_TO_ZERO} "
                f"holds all models at once; allowed: {limit:,.0f} MiB; fix: {first_change(plan)}, or topology: "
                "multi-model",
            )
    if plan.fits:
        for model in plan.models:
            yield from _stated_memory_misfits(catalog.models[model.name], model, plan)


def _stated_memory_misfits(entry: ModelEntry, model: ModelPlan, plan: MemoryPlan) -> Iterator[Misfit]:
    """Yield an error if the catalog states more memory for a model than is free once all other models are loaded."""
    host_others = plan.host_used_mib - model.host_total_mib
    stated = [("required_memory_mb", entry.required_memory_mb, plan.instance.memory_mib - host_others)]
    if model.gpu is not None:
        gpu_others = plan.gpu_idle_mib - model.gpu.idle * model.demand.workers
        key = "required_memory_mb" if entry.gpu.required_memory_mb is None else "gpu.required_memory_mb"
        required = entry.gpu.required_memory_mb or entry.required_memory_mb
        stated.append((key, required, plan.gpu_usable_mib - gpu_others))
    for key, required, free in stated:
        left = free - (entry.reserved_memory_mb or 0)
        if required is not None and required > left:
            yield error(
                "startup-memory",
                f"models.{model.name}.{key}: {required:,} MiB are not free once the others are loaded, so the "
                f"server would not start; allowed: {max(left, 0):,.0f} MiB; fix: lower it, or leave memory keys out",
            )


def _environment_misfits(catalog: Catalog) -> Iterator[Misfit]:
    for name, value in catalog.endpoint.environment.items():
        wanted = STARTUP_ENVIRONMENT.get(name)
        if wanted is not None and value.casefold() != wanted.casefold():
            yield error(
                "startup-environment",
                f"endpoint.environment.{name}: {value!r} keeps the container from loading all models before it "
                f"answers; allowed: {wanted!r}; fix: take the variable out",
            )
        elif name in _OTHER_MODEL:
            yield error(
                "startup-environment",
                f"endpoint.environment.{name}: makes the server look for other models than those of the catalog; "
                "allowed: without it; fix: take the variable out",
            )
