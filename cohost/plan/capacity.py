"""How much more an instance takes, and what to change first when it does not take what is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cohost.instances import INSTANCES
from cohost.plan.memory import plan_demands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cohost.plan.memory import MemoryPlan, ModelPlan
    from cohost.plan.workers import Demand

MOST_WORKERS: Final = 64
MOST_BATCH: Final = 1024


@dataclass(frozen=True, kw_only=True)
class Room:
    """The largest values that still fit for one model while all others stay as they are; 0 where not even 1 fits."""

    name: str
    workers: int
    batch: int


def room_of(plan: MemoryPlan) -> tuple[Room, ...]:
    """For each model of a plan, how many workers and how large a batch would still fit."""
    return tuple(
        Room(
            name=model.name,
            workers=_largest(MOST_WORKERS, lambda n, m=model: _fits(plan, replace(m.demand, workers=n))),  # type: ignore[misc]
            batch=_largest(MOST_BATCH, lambda n, m=model: _fits(plan, replace(m.demand, batch=n))),  # type: ignore[misc]
        )
        for model in plan.models
    )


def first_change(plan: MemoryPlan) -> str | None:
    """The smallest change that makes a plan fit, as a sentence; None where it fits as it is.

    Tried in this order, since each costs more than the one before: fewer workers of one model, half precision for one,
    smaller batches of one; then each kind for every model together; then the next larger instance type.
    """
    if plan.fits:
        return None
    for sentence, demands in _changes(plan):
        if _plan_like(plan, demands).fits:
            return sentence
    larger = next(
        (name for name in _larger_types(plan) if _plan_like(plan, _demands(plan), instance_type=name).fits), None
    )
    if larger is not None:
        return f"instance_type: {larger}"
    return "put the models on several endpoints: `cohost plan --fleet` says how many"


def _changes(plan: MemoryPlan) -> Iterator[tuple[str, list[Demand]]]:
    demands = _demands(plan)
    by_saving = sorted(plan.models, key=_size, reverse=True)
    for model in by_saving:
        for workers in range(model.demand.workers - 1, 0, -1):
            sentence = f"models.{model.name}.{_device(model)}.maxWorkers: {workers} (now {model.demand.workers})"
            yield sentence, _with(demands, replace(model.demand, workers=workers))
    for model in by_saving:
        if model.demand.element_bytes > 2:  # noqa: PLR2004 - bytes of half precision
            yield f"models.{model.name}.dtype: fp16 (now fp32)", _with(demands, replace(model.demand, dtype="fp16"))
    for model in by_saving:
        batch = model.demand.batch
        while batch > 1:
            batch //= 2
            sentence = f"models.{model.name}.batch_size: {batch} (now {model.demand.batch})"
            yield sentence, _with(demands, replace(model.demand, batch=batch))
    device = _device(by_saving[0]) if by_saving else "gpu"
    yield f"{device}.maxWorkers: 1 for every model", [replace(demand, workers=1) for demand in demands]
    yield "dtype: fp16 for every model", [replace(demand, dtype="fp16") for demand in demands]
    yield (
        f"{device}.maxWorkers: 1 and dtype: fp16 for every model",
        [replace(demand, workers=1, dtype="fp16") for demand in demands],
    )


def _larger_types(plan: MemoryPlan) -> list[str]:
    """Types of the same kind with more memory: one GPU first, documented ones first, then by memory."""
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


def _fits(plan: MemoryPlan, changed: Demand) -> bool:
    return _plan_like(plan, _with(_demands(plan), changed)).fits


def _demands(plan: MemoryPlan) -> list[Demand]:
    return [model.demand for model in plan.models]


def _with(demands: list[Demand], changed: Demand) -> list[Demand]:
    return [changed if demand.name == changed.name else demand for demand in demands]


def _size(model: ModelPlan) -> float:
    return model.gpu_total_mib or model.host_total_mib


def _device(model: ModelPlan) -> str:
    return "gpu" if model.gpu is not None else "cpu"


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `limit` that fits, where whatever is smaller than a fitting one fits too."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
