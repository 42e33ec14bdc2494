"""Compute how many workers and what batch size fit for each model of a memory plan, or what change makes it fit."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cohost.archives.handlers import ENGINE_HANDLERS
from cohost.forecast.plan.memory import plan_demands
from cohost.hardware.instances import INSTANCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cohost.forecast.plan.memory import MemoryPlan, ModelPlan
    from cohost.forecast.plan.workers import Demand


MOST_WORKERS: Final = 64
MOST_BATCH: Final = 1024


@dataclass(frozen=True, kw_only=True)
class Room:
    """The most workers, and the largest batch, of one model that fit if nothing else changes; 0 if not even 1 fits."""

    name: str
    workers: int
    batch: int


def room_of(plan: MemoryPlan) -> tuple[Room, ...]:
    """Return each model's most workers and largest batch; with `handler: shared`, a model has one worker at most."""

    def largest(model: ModelPlan, field: str, limit: int) -> int:
        # Every number below a number that fits also fits.
        return bisect_left(range(1, limit + 1), 1, key=lambda number: not _fits_with(plan, model, field, number))

    return tuple(
        Room(
            name=model.name,
            workers=largest(model, "workers", 1 if model.demand.shared else MOST_WORKERS),
            batch=largest(model, "batch", MOST_BATCH),
        )
        for model in plan.models
    )


def first_change(plan: MemoryPlan) -> str | None:
    """Return the cheapest change that makes a plan fit, as a sentence; None if the plan fits already.

    Changes are tried in this order, because each costs more than the change before it. The first changes are fewer
    workers, half precision or smaller batches for one model; then one worker, half precision or both for every model;
    last, a larger instance type.
    """
    if plan.fits:
        return None
    several = "put the models on several endpoints: `cohost plan --fleet` shows how many"
    return next((sentence for sentence, fits in _changes(plan) if fits), several)


def _changes(plan: MemoryPlan) -> Iterator[tuple[str, bool]]:
    """Yield each change as a sentence, with True if the plan would then fit; cheap changes come first."""
    device = "cpu" if plan.models[0].gpu is None else "gpu"
    by_size = sorted(plan.models, key=lambda model: model.gpu_total_mib or model.host_total_mib, reverse=True)
    for model in by_size:
        now = model.demand.workers
        for workers in range(now - 1, 0, -1):
            sentence = f"models.{model.name}.{device}.maxWorkers: {workers} (now {now})"
            yield sentence, _fits_with(plan, model, "workers", workers)
    for model in by_size:
        if model.demand.element_bytes > 2:  # noqa: PLR2004 - bytes of half precision
            yield f"models.{model.name}.dtype: fp16 (now fp32)", _fits_with(plan, model, "dtype", "fp16")
    for model in by_size:
        batch = now = model.demand.batch
        while batch > 1:
            batch //= 2
            yield _smaller_batch(model.demand, batch), _fits_with(plan, model, "batch", batch)
    yield from _joint_changes(plan, f"{device}.maxWorkers: 1", "dtype: fp16")


def _smaller_batch(demand: Demand, batch: int) -> str:
    """Return the catalog key and value that limit a model's forward passes to `batch` texts."""
    if demand.handler in ENGINE_HANDLERS:
        tokens, now = batch * demand.tokens, demand.batch * demand.tokens
        return f"models.{demand.name}.{demand.handler}.max_batch_tokens: {tokens} (now {now})"
    return f"models.{demand.name}.batch_size: {batch} (now {demand.batch})"


def _joint_changes(plan: MemoryPlan, workers: str, dtype: str) -> Iterator[tuple[str, bool]]:
    demands = [model.demand for model in plan.models]
    halved = [replace(demand, dtype="fp16") for demand in demands]
    for words, changed in (
        (workers, [replace(demand, workers=1) for demand in demands]),
        (dtype, halved),
        (f"{workers} and {dtype}", [replace(demand, workers=1) for demand in halved]),
    ):
        yield f"{words} for every model", _plan_like(plan, changed, plan.instance_type).fits
    for name in _larger_types(plan):
        yield f"instance_type: {name}", _plan_like(plan, demands, name).fits


def _larger_types(plan: MemoryPlan) -> list[str]:
    """Return the instance types with more memory than the plan's, in the order in which to try them.

    For a plan on a GPU type, only GPU types are returned; for a plan on a CPU type, only CPU types. The types are
    sorted by three criteria: one GPU before several, then AWS's documented GPU types for multi-model endpoints before
    others, then by memory.
    """
    now = plan.instance
    types = [
        (name, instance)
        for name, instance in INSTANCES.items()
        if bool(instance.gpus) == bool(now.gpus)
        and (instance.gpu_memory_mib, instance.memory_mib) > (now.gpu_memory_mib, now.memory_mib)
        and instance.gpu_memory_mib >= now.gpu_memory_mib
        and (instance.gpu_compute_capability or (0, 0)) >= (now.gpu_compute_capability or (0, 0))
    ]
    types.sort(
        key=lambda item: (
            item[1].gpus > 1,
            not item[1].multi_model_gpu_documented,
            item[1].gpu_memory_mib,
            item[1].memory_mib,
            item[0],
        )
    )
    return [name for name, _ in types]


def _plan_like(plan: MemoryPlan, demands: list[Demand], instance_type: str) -> MemoryPlan:
    on_gpu = any(model.gpu is not None for model in plan.models)
    engines = 1 if plan.engines is None else plan.engines.count
    return plan_demands(
        demands, instance_type=instance_type, on_gpu=on_gpu, figures=plan.figures, engines_per_device=engines
    )


def _fits_with(plan: MemoryPlan, model: ModelPlan, field: str, value: int | str) -> bool:
    """Return True if a plan fits when one field of one model's Demand has another value.

    Only the changed model is recalculated, so that the check stays fast in a catalog of thousands of models.
    """
    changed = replace(model.demand, **{field: value})  # type: ignore[arg-type]
    # The models with the largest passes decide about the engine processes: these count beside the changed model.
    before, after = (
        _plan_like(
            plan, [*(other for other in plan.largest_shared if other.name != model.name), own], plan.instance_type
        )
        for own in (model.demand, changed)
    )
    gpu = plan.gpu_used_mib - before.gpu_used_mib + after.gpu_used_mib
    host = plan.host_used_mib - _processes(before) + _processes(after)
    return (gpu <= plan.gpu_usable_mib or not plan.instance.gpus) and host <= plan.instance.memory_mib


def _processes(plan: MemoryPlan) -> float:
    return plan.host_workers_mib + plan.host_check_mib
