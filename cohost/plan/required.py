"""The memory keys of serving.properties, derived from a model's profile where the catalog states none of them.

DJL Serving 0.36.0 holds `required_memory_mb` against the free memory of the host and, unless `gpu.required_memory_mb`
says otherwise, of the GPU too, and refuses a load after which less than `reserved_memory_mb` would stay free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cohost.plan.memory import demand_of
from cohost.plan.workers import SERVER, cpu_worker_mib, gpu_worker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cohost.catalog.models import Catalog, ModelEntry
    from cohost.plan.profiles import Profile

STEP_MIB: Final = 128
"""Derived values are rounded up to this, so that a finer estimate seldom changes an archive."""


@dataclass(frozen=True, kw_only=True)
class RequiredMemory:
    """MiB that must be free before a model loads, on the host and on the GPU, and that must stay free after it."""

    required_memory_mb: int
    gpu_required_memory_mb: int
    reserved_memory_mb: int


def derive(name: str, entry: ModelEntry, profile: Profile) -> RequiredMemory:
    """What the workers of an entry need: loaded and idle as required, their activations as reserved."""
    demand = demand_of(name, entry, profile, on_gpu=True)
    worker = gpu_worker(demand)
    host = SERVER.gpu_worker_mib * demand.workers
    if entry.cpu is not None:
        on_cpu = demand_of(name, entry, profile, on_gpu=False)
        host = max(host, cpu_worker_mib(on_cpu) * on_cpu.workers)
    return RequiredMemory(
        required_memory_mb=_rounded_up(host),
        gpu_required_memory_mb=_rounded_up(worker.idle * demand.workers),
        reserved_memory_mb=_rounded_up((worker.peak - worker.idle) * demand.workers),
    )


def states_memory(entry: ModelEntry) -> bool:
    """Whether the catalog decides on an entry's memory itself; then nothing is derived for it."""
    stated = (entry.required_memory_mb, entry.gpu.required_memory_mb, entry.reserved_memory_mb)
    return any(value is not None for value in stated)


def with_derived_memory(catalog: Catalog, profiles: Mapping[str, Profile]) -> Catalog:
    """The catalog with the memory keys filled in for the models that state none and have a profile."""
    derived = {
        name: _filled(name, entry, profiles[entry.model_id])
        for name, entry in catalog.models.items()
        if entry.model_id in profiles and not states_memory(entry)
    }
    return catalog.model_copy(update={"models": {**catalog.models, **derived}}) if derived else catalog


def _filled(name: str, entry: ModelEntry, profile: Profile) -> ModelEntry:
    memory = derive(name, entry, profile)
    gpu = entry.gpu.model_copy(update={"required_memory_mb": memory.gpu_required_memory_mb})
    return entry.model_copy(
        update={
            "required_memory_mb": memory.required_memory_mb,
            "reserved_memory_mb": memory.reserved_memory_mb,
            "gpu": gpu,
        }
    )


def _rounded_up(mib: float) -> int:
    return math.ceil(mib / STEP_MIB) * STEP_MIB
