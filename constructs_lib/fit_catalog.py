"""Do the models of a catalog fit the instance, are they pinned, is the bill known; told before anything is deployed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.artifacts.handlers import BATCHED
from cohost.instances import INSTANCES
from cohost.plan.capacity import first_change
from cohost.plan.errors import PlanError
from cohost.plan.memory import plan_catalog, plan_demands
from cohost.plan.required import derive
from cohost.pricing import price_note, today
from cohost.routing import SCALE_TO_ZERO
from constructs_lib.fit import Misfit, error, some, warning
from constructs_lib.fit_component import component_misfits, startup_memory_misfits
from constructs_lib.fit_engines import engine_misfits
from constructs_lib.fit_network import network_misfits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cohost.catalog.models import Catalog
    from cohost.images import Image
    from cohost.plan.memory import MemoryPlan, ModelPlan
    from cohost.plan.profiles import Profile
    from cohost.pricing import PriceList

_OFFLINE_VARIABLES: Final = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def catalog_misfits(
    catalog: Catalog, image: Image, profiles: Mapping[str, Profile], prices: PriceList, region: str
) -> list[Misfit]:
    """Everything that speaks against a catalog's models on its instance type, and against its bill."""
    return [
        *_memory_misfits(catalog, profiles),
        *engine_misfits(catalog, profiles),
        *_worker_misfits(catalog, image),
        *_revision_misfits(catalog),
        *_offline_misfits(catalog),
        *component_misfits(catalog, image),
        *network_misfits(catalog),
        *_price_misfits(catalog, prices, region),
    ]


def _memory_misfits(catalog: Catalog, profiles: Mapping[str, Profile]) -> Iterator[Misfit]:
    try:
        plan = plan_catalog(catalog, profiles)
    except PlanError:  # a type that is in no table has a warning of its own
        return
    if plan.unknown:
        yield warning(
            "memory-unknown",
            f"models: {some(plan.unknown)} without a profile, so their memory is not checked; "
            f"fix: cohost models inspect {plan.unknown[0]} --write",
        )
    too_large = [model for model in plan.models if not _alone(plan, model).fits]
    for model in too_large:
        yield _too_large(plan, model)
    if not too_large:
        at_once = catalog.endpoint.topology == SCALE_TO_ZERO
        yield from startup_memory_misfits(catalog, plan) if at_once else _together(plan)
        yield from _tight(plan)
    yield from _required_memory(catalog, plan, profiles)


def _alone(plan: MemoryPlan, model: ModelPlan) -> MemoryPlan:
    return plan_demands([model.demand], instance_type=plan.instance_type, on_gpu=model.gpu is not None)


def _too_large(plan: MemoryPlan, model: ModelPlan) -> Misfit:
    alone = _alone(plan, model)
    used, limit, what = (
        (alone.host_used_mib, alone.instance.memory_mib, "of the host")
        if alone.gpu_fits
        else (alone.gpu_used_mib, alone.gpu_usable_mib, f"of one {plan.instance.gpu_name}")
    )
    return error(
        "model-memory",
        f"models.{model.name}: {model.demand.workers} workers take {used:,.0f} MiB {what} of {plan.instance_type}; "
        f"allowed: {limit:,.0f} MiB; fix: {first_change(alone)}",
    )


def _together(plan: MemoryPlan) -> Iterator[Misfit]:
    """Models that each fit but not together are loaded and unloaded in turns, which works and is slow."""
    if not plan.gpu_fits:
        yield warning(
            "gpu-memory",
            f"models: all workers take {plan.gpu_used_mib:,.0f} of {plan.gpu_usable_mib:,.0f} MiB of one "
            f"{plan.instance.gpu_name}, so models are unloaded for one another; first change: {first_change(plan)}",
        )
    if not plan.host_fits:
        yield warning(
            "host-memory",
            f"models: all workers take {plan.host_used_mib:,.0f} of {plan.instance.memory_mib:,} MiB of the host's "
            f"memory, so models are unloaded for one another; first change: {first_change(plan)}",
        )


def _tight(plan: MemoryPlan) -> Iterator[Misfit]:
    if plan.tight:
        yield warning(
            "memory-tight",
            f"models: all workers take {plan.gpu_used_mib:,.0f} of {plan.gpu_usable_mib:,.0f} MiB of GPU and "
            f"{plan.host_used_mib:,.0f} of {plan.instance.memory_mib:,} MiB of host memory, which is within the plan's "
            "own error; fix: a larger instance_type, fewer workers, or measure under load first",
        )


def _required_memory(catalog: Catalog, plan: MemoryPlan, profiles: Mapping[str, Profile]) -> Iterator[Misfit]:
    """A requirement below what is needed lets a model be loaded that then fails under load."""
    for model in plan.models:
        entry = catalog.models[model.name]
        needed = derive(model.name, entry, profiles[entry.model_id])
        stated = entry.gpu.required_memory_mb or entry.required_memory_mb
        if model.gpu is not None and stated is not None and stated < model.gpu.idle * model.demand.workers:
            yield warning(
                "required-memory",
                f"models.{model.name}: {stated} MiB are stated as required, its workers take "
                f"{model.gpu.idle * model.demand.workers:,.0f} MiB of the GPU before their first call; "
                f"fix: gpu.required_memory_mb: {needed.gpu_required_memory_mb}, or leave the memory keys out",
            )


def _worker_misfits(catalog: Catalog, image: Image) -> Iterator[Misfit]:
    instance = INSTANCES.get(catalog.endpoint.instance_type)
    if instance is None or (instance.gpus and image.accelerator == "gpu"):
        return
    # An archive with the batching handler always states its workers.
    unbound = [name for name, entry in catalog.models.items() if entry.cpu is None and entry.handler != BATCHED]
    if unbound:
        yield warning(
            "cpu-workers-unbound",
            f"models: {some(unbound)} without cpu.minWorkers and cpu.maxWorkers, so the server starts one worker for "
            f"each of {instance.vcpus} cores; fix: cpu: {{minWorkers: 1, maxWorkers: 1}}",
        )
    workers = sum(entry.cpu.max_workers for entry in catalog.models.values() if entry.cpu is not None)
    if workers > instance.vcpus:
        yield warning(
            "cpu-workers",
            f"models: {workers} CPU workers on {instance.vcpus} vCPUs of {catalog.endpoint.instance_type} wait for one "
            "another under load; fix: fewer maxWorkers, or a type with more vCPUs",
        )


def _revision_misfits(catalog: Catalog) -> Iterator[Misfit]:
    unpinned = [name for name, entry in catalog.models.items() if entry.revision is None and entry.from_hub]
    if unpinned:
        yield warning(
            "revision-not-pinned",
            f"models: {some(unpinned)} without a revision, so a push to the Hub changes what a new instance serves; "
            "fix: revision: the 40 digits of the commit that you tested",
        )


def _offline_misfits(catalog: Catalog) -> Iterator[Misfit]:
    offline = [name for name in _OFFLINE_VARIABLES if catalog.endpoint.environment.get(name, "0") not in {"0", ""}]
    on_hub = [name for name, entry in catalog.models.items() if entry.from_hub]
    if offline and on_hub:
        yield error(
            "hub-offline",
            f"endpoint.environment.{offline[0]}: keeps the container from fetching {some(on_hub)} from the Hub; "
            "allowed: with weights in S3 only; fix: take the variable out, or weights: s3 (`cohost weights push`)",
        )


def _price_misfits(catalog: Catalog, prices: PriceList, region: str) -> Iterator[Misfit]:
    instance_type = catalog.endpoint.instance_type
    price = prices.find(region, instance_type)
    if note := price_note(price, region, instance_type, today()):
        yield warning("price-unknown" if price is None else "price-old", f"endpoint.instance_type: {note}")
