"""The spare room of a memory plan, and the smallest change that makes a plan fit."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

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
    """The largest values that still fit for one model while all others stay as they are; 0 if not even 1 fits."""

    name: str
    workers: int
    batch: int


def room_of(plan: MemoryPlan) -> tuple[Room, ...]:
    """Return, for each model of a plan, the most workers and the largest batch that would still fit."""

    def largest(model: ModelPlan, field: str, limit: int) -> int:
        # Every number below one that fits does too.
        return bisect_left(range(1, limit + 1), 1, key=lambda number: not _fits_with(plan, model, field, number))

    return tuple(
        Room(
            name=model.name,
            workers=largest(model, "workers", MOST_WORKERS),
            batch=largest(model, "batch", MOST_BATCH),
        )
        for model in plan.models
    )


def first_change(plan: MemoryPlan) -> str | None:
    """Return the smallest change that makes a plan fit, as a sentence; None if it already fits.

    Changes are tried in this order, since each costs more than the one before: fewer workers of one model, half
    precision for one model, smaller batches of one model; then each kind for all models together; then the next larger
    instance type.
    """
    if plan.fits:
        return None
    for sentence, model, field, value in _single_changes(plan):
        if _fits_with(plan, model, field, value):
            return sentence
    for sentence, demands in _joint_changes(plan):
        if _plan_like(plan, demands).fits:
            return sentence
    larger = next(
        (name for name in _larger_types(plan) if _plan_like(plan, _demands(plan), instance_type=name).fits), None
    )
    if larger is not None:
        return f"instance_type: {larger}"
    return "put the models on several endpoints: `cohost plan --fleet` says how many"


def _single_changes(plan: MemoryPlan) -> Iterator[tuple[str, ModelPlan, str, int | str]]:
    """Yield changes of one model each, with the field of its demand and the value; the largest models first."""
    by_size = sorted(plan.models, key=_size, reverse=True)
    for model in by_size:
        now = model.demand.workers
        for workers in range(now - 1, 0, -1):
            yield f"models.{model.name}.{_device(model)}.maxWorkers: {workers} (now {now})", model, "workers", workers
    for model in by_size:
        if model.demand.element_bytes > 2:  # noqa: PLR2004 - bytes of half precision
            yield f"models.{model.name}.dtype: fp16 (now fp32)", model, "dtype", "fp16"
    for model in by_size:
        batch = now = model.demand.batch
        while batch > 1:
            batch //= 2
            yield f"models.{model.name}.batch_size: {batch} (now {now})", model, "batch", batch


def _joint_changes(plan: MemoryPlan) -> Iterator[tuple[str, list[Demand]]]:
    """Yield changes of all models at once."""
    demands = _demands(plan)
    device = _device(plan.models[0])
    yield f"{device}.maxWorkers: 1 for every model", [replace(demand, workers=1) for demand in demands]
    yield "dtype: fp16 for every model", [replace(demand, dtype="fp16") for demand in demands]
    yield (
        f"{device}.maxWorkers: 1 and dtype: fp16 for every model",
        [replace(demand, workers=1, dtype="fp16") for demand in demands],
    )


def _larger_types(plan: MemoryPlan) -> list[str]:
    """Return types of the same kind with more memory: single-GPU types first, documented ones first, then by memory."""
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


def _plan_like(plan: MemoryPlan, demands: list[Demand], *, instance_type: str | None = None) -> MemoryPlan:
    return plan_demands(
        demands,
        instance_type=instance_type or plan.instance_type,
        on_gpu=any(model.gpu is not None for model in plan.models),
        figures=plan.figures,
    )


def _fits_with(plan: MemoryPlan, model: ModelPlan, field: str, value: int | str) -> bool:
    """Return True if a plan fits with one field of one model's demand changed.

    Only that model is recalculated, so that the check stays fast for each model of a catalog of thousands.
    """
    changed = replace(model.demand, **{field: value})  # type: ignore[arg-type]
    alone = _plan_like(plan, [changed]).models[0]
    gpu = plan.gpu_used_mib - model.gpu_total_mib + alone.gpu_total_mib
    host = plan.host_used_mib + (alone.host_total_mib - model.host_total_mib) * max(plan.instance.gpus, 1)
    return (gpu <= plan.gpu_usable_mib or not plan.instance.gpus) and host <= plan.instance.memory_mib


def _demands(plan: MemoryPlan) -> list[Demand]:
    return [model.demand for model in plan.models]


def _size(model: ModelPlan) -> float:
    return model.gpu_total_mib or model.host_total_mib


def _device(model: ModelPlan) -> str:
    return "gpu" if model.gpu is not None else "cpu"
