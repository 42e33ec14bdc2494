"""Plan a catalog's memory: compare what its workers need on an instance's GPUs and host with what the instance has.

If the catalog states no memory key of serving.properties for a model, the module `memory` derives these keys from the
model's profile. DJL Serving 0.36.0 compares `required_memory_mb` with the free memory of the host and, unless
`gpu.required_memory_mb` is set, of the GPU too. DJL Serving refuses to load a model if less than `reserved_memory_mb`
would stay free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from cohost.archives.handlers import ENGINE_HANDLERS, SHARED
from cohost.errors import CohostError, PlanError
from cohost.forecast.plan.workers import (
    KERNELS_UNCERTAIN_MIB,
    MIB,
    SERVER,
    SIDE_BY_SIDE,
    Demand,
    SharedEngines,
    WorkerMemory,
    gpu_worker,
    host_worker_mib,
    largest_pass,
    served_dtype,
    shared_engines,
)
from cohost.hardware.images import parse_image
from cohost.hardware.instances import INSTANCES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cohost.catalog.models import Catalog, ModelEntry
    from cohost.forecast.plan.profiles import Profile
    from cohost.forecast.plan.workers import HostFigures
    from cohost.hardware.instances import Instance


# Total memory in MiB that CUDA reports, for GPUs where that is less than the size in the instance table. T4, A10G, L4
# and L40S: 14.57, 22.06, 22.03 and 44.39 GiB in torch's out-of-memory errors, as users' logs of 2024 to 2026 quote
# them; nvidia-smi shows some 450 MiB more, which the driver keeps. Older drivers gave a T4 and an A10G up to 190 MiB
# more. V100 and K80: nvidia-smi's total in users' listings.
_USABLE_GPU_MIB: Final[Mapping[str, int]] = {
    "T4": 14_920,
    "A10G": 22_589,
    "L4": 22_559,
    "L40S": 45_455,
    "V100": 16_160,
    "K80": 11_441,
}
_USABLE_UNCERTAIN_MIB: Final = 190.0

TIGHT_SHARE: Final = 0.9
"""The share of the memory above which a plan is called tight, since the plan's own error is some percent."""


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """One model of a memory plan, with the memory of one of its workers.

    `gpu` is the worker's GPU memory (None on an instance without a GPU), `host_mib` its host memory in MiB.
    """

    demand: Demand
    gpu: WorkerMemory | None
    host_mib: float

    @property
    def name(self) -> str:
        """Return the model's name in the catalog."""
        return self.demand.name

    @property
    def gpu_total_mib(self) -> float:
        """Return the memory of all the model's workers on one GPU, at their peaks, in MiB; 0 without a GPU."""
        return 0.0 if self.gpu is None else self.gpu.peak * self.demand.workers

    @property
    def host_total_mib(self) -> float:
        """Return the host memory, in MiB, of the model's workers for one GPU; without a GPU, of all its workers."""
        return self.host_mib * self.demand.workers


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """The memory plan of a catalog's models on one instance.

    A model's number of workers is per GPU, because DJL Serving starts that number on each GPU. `engines` are the engine
    processes, on one GPU or on a CPU instance, of the models with `handler: shared`; None if no model has that handler.
    `unknown` names the models without a profile, which are left out of all sums.
    """

    instance_type: str
    instance: Instance
    models: tuple[ModelPlan, ...]
    engines: SharedEngines | None
    unknown: tuple[str, ...]
    figures: HostFigures

    @property
    def gpu_usable_mib(self) -> float:
        """Return the part of one GPU's memory that processes can use, in MiB."""
        return usable_gpu_mib(self.instance)

    @cached_property
    def gpu_used_mib(self) -> float:
        """Return the GPU memory, in MiB, of all workers on one GPU at their peaks and of the last load's check."""
        engines = 0.0 if self.engines is None else self.engines.gpu_total_mib + self.engines.gpu_check_mib
        return engines + sum(model.gpu_total_mib for model in self.models)

    @property
    def gpu_idle_mib(self) -> float:
        """Return the GPU memory, in MiB, of all workers on one GPU before their first calls."""
        own = sum(model.gpu.idle * model.demand.workers for model in self.models if model.gpu is not None)
        engines = self.engines
        return own if engines is None or engines.gpu is None else own + engines.gpu.idle * engines.count

    @cached_property
    def largest_shared(self) -> tuple[Demand, ...]:
        """Return the demands of those models with `handler: shared` that have the largest passes and loads.

        The returned demands are enough to compute the memory of the engine processes, even if any one model is changed.
        """
        shared = [model.demand for model in self.models if model.demand.shared]
        passes = sorted(shared, key=lambda demand: demand.activation_mib)[-1 - SIDE_BY_SIDE :]
        loads = sorted(shared, key=lambda demand: demand.loading_extra_mib)[-2:]
        return tuple({demand.name: demand for demand in (*passes, *loads)}.values())

    @property
    def gpu_margin_mib(self) -> float:
        """Return one GPU's free memory, in MiB, when all workers are at their peaks; negative if they need too much."""
        return self.gpu_usable_mib - self.gpu_used_mib

    @property
    def gpu_uncertain_mib(self) -> float:
        """Return the possible error of the GPU estimate in MiB: that of the usable memory plus that of all kernels."""
        processes = sum(model.demand.workers for model in self.models if not model.demand.shared)
        processes += 0 if self.engines is None else self.engines.count
        return _USABLE_UNCERTAIN_MIB + KERNELS_UNCERTAIN_MIB * processes

    @property
    def page_cache_mib(self) -> float:
        """Return the host memory, in MiB, that loading the largest model takes in addition to its worker's memory.

        On a GPU instance the checkpoint is in the page cache, and the weights are converted on the CPU before they go
        to the GPU. Only the larger of the page cache and the converted weights counts, since the operating system gives
        up page cache when memory is short.
        """
        return max((_load_bytes(model) / MIB for model in self.models), default=0.0)

    @cached_property
    def host_used_mib(self) -> float:
        """Return the used host memory, in MiB: system, router, all workers, `page_cache_mib` and `host_check_mib`."""
        server = self.figures.system_mib + self.figures.router_mib + self.page_cache_mib + self.host_check_mib
        return server + self.host_workers_mib

    @property
    def host_workers_mib(self) -> float:
        """Return the host memory of the processes of all models on all GPUs, in MiB."""
        engines = 0.0 if self.engines is None else self.engines.host_total_mib
        return (engines + sum(model.host_total_mib for model in self.models)) * max(self.instance.gpus, 1)

    @property
    def host_check_mib(self) -> float:
        """Return the free host memory, in MiB, that DJL Serving's check requires for an engine process.

        The archive of each model with `handler: shared` reserves this memory, because any of these models may be loaded
        first and so start the engine process.
        """
        return 0.0 if self.engines is None else self.engines.host_mib

    @property
    def gpu_fits(self) -> bool:
        """Return True if the memory of all models together fits on one GPU, or if the instance has no GPU."""
        return self.gpu_used_mib <= self.gpu_usable_mib or not self.instance.gpus

    @property
    def host_fits(self) -> bool:
        """Return True if the workers of all models fit into host memory together."""
        return self.host_used_mib <= self.instance.memory_mib

    @property
    def fits(self) -> bool:
        """Return True if all models can be loaded at the same time, on the GPU and on the host."""
        return self.gpu_fits and self.host_fits

    @property
    def tight(self) -> bool:
        """Return True if all models fit, but more than the share `TIGHT_SHARE` of the GPU or host memory is used."""
        gpu = self.instance.gpus > 0 and self.gpu_used_mib > TIGHT_SHARE * self.gpu_usable_mib
        return self.fits and (gpu or self.host_used_mib > TIGHT_SHARE * self.instance.memory_mib)


def _load_bytes(model: ModelPlan) -> int:
    profile = model.demand.profile
    if model.gpu is None:
        return profile.checkpoint_bytes
    return max(profile.checkpoint_bytes, profile.weight_bytes(model.demand.loading_dtype))


def usable_gpu_mib(instance: Instance) -> float:
    """Return the part of one GPU's memory that processes can use, in MiB; 0 for an instance without a GPU."""
    return float(_USABLE_GPU_MIB.get(instance.gpu_name or "", instance.gpu_memory_mib))


def demand_of(
    name: str, entry: ModelEntry, profile: Profile, *, on_gpu: bool, batch: int | None = None, tokens: int | None = None
) -> Demand:
    """Return the Demand of a catalog entry, with its largest number of workers and its handler's largest forward pass.

    If given, `batch` (texts per pass) and `tokens` (length of each text) replace the values that follow from the entry.
    """
    device = entry.gpu if on_gpu else entry.cpu
    texts, length = largest_pass(entry, profile.shape, on_gpu=on_gpu, tokens=tokens)
    dtype = served_dtype(entry)
    return Demand(
        name=name,
        profile=profile,
        workers=1 if device is None else device.max_workers,
        batch=batch or texts,
        tokens=length,
        dtype=dtype,
        # The project's handlers first compute reference answers in fp32, so they load the weights in fp32.
        loading_dtype="fp32" if entry.handler in ENGINE_HANDLERS else dtype,
        handler=entry.handler,
    )


def plan_demands(
    demands: Sequence[Demand],
    *,
    instance_type: str,
    on_gpu: bool = True,
    unknown: Sequence[str] = (),
    figures: HostFigures = SERVER,
    engines_per_device: int = 1,
) -> MemoryPlan:
    """Return the memory plan of models with these demands.

    Raises:
        PlanError: the instance type is not known.
    """
    if (instance := INSTANCES.get(instance_type)) is None:
        raise PlanError(
            "instance-unknown",
            "endpoint.instance_type",
            f"{instance_type!r} is not a type whose memory is known",
            allowed="ml.g4dn, ml.g5, ml.g6, ml.g6e, ml.p2, ml.p3 and the x86 types of ml.c, ml.m and ml.r",
            fix="plan with one of them: --instance-type ml.g5.xlarge",
        )
    gpu = on_gpu and instance.gpus > 0
    return MemoryPlan(
        instance_type=instance_type,
        instance=instance,
        models=tuple(
            ModelPlan(
                demand=demand,
                gpu=gpu_worker(demand) if gpu else None,
                host_mib=host_worker_mib(demand, on_gpu=gpu, figures=figures),
            )
            for demand in demands
        ),
        engines=shared_engines(demands, count=engines_per_device, on_gpu=gpu, figures=figures),
        unknown=tuple(unknown),
        figures=figures,
    )


def plan_catalog(
    catalog: Catalog,
    profiles: Mapping[str, Profile],
    *,
    instance_type: str | None = None,
    batch: int | None = None,
    tokens: int | None = None,
) -> MemoryPlan:
    """Return the memory plan of the models of a catalog that have a profile.

    If given, `instance_type` replaces the catalog's own type; `batch` (texts per forward pass) and `tokens` (length of
    each text) replace the values that follow from the catalog's entries.

    Raises:
        PlanError: the instance type is not known.
    """
    chosen = instance_type or catalog.endpoint.instance_type
    on_gpu = _on_gpu(catalog, chosen)
    demands = [
        demand_of(name, entry, profiles[entry.model_id], on_gpu=on_gpu, batch=batch, tokens=tokens)
        for name, entry in catalog.models.items()
        if entry.model_id in profiles
    ]
    unknown = [name for name, entry in catalog.models.items() if entry.model_id not in profiles]
    engines = catalog.endpoint.engines_per_device
    return plan_demands(demands, instance_type=chosen, on_gpu=on_gpu, unknown=unknown, engines_per_device=engines)


def _on_gpu(catalog: Catalog, instance_type: str) -> bool:
    """Return True if a catalog's models compute on GPUs of this instance type."""
    instance = INSTANCES.get(instance_type)
    try:
        return instance is not None and instance.gpus > 0 and parse_image(catalog.endpoint.image).accelerator == "gpu"
    except CohostError:  # other checks report a wrong image
        return True


STEP_MIB: Final = 128
"""Derived memory keys are multiples of this many MiB, so that a finer estimate seldom changes an archive."""


@dataclass(frozen=True, kw_only=True)
class RequiredMemory:
    """The derived memory keys of one model, in MiB.

    The required amounts of memory must be free on the host and on the GPU before the model is loaded; the reserved
    amounts must stay free after the loading. `gpu_reserved_memory_mb` is None if `reserved_memory_mb` applies to the
    GPU too.
    """

    required_memory_mb: int
    gpu_required_memory_mb: int
    reserved_memory_mb: int
    gpu_reserved_memory_mb: int | None = None


def required_memory(catalog: Catalog, profiles: Mapping[str, Profile]) -> dict[str, RequiredMemory]:
    """Return the memory keys of each model that has a profile, by the model's name.

    A model that has its own processes requires the memory of its loaded, idle workers and reserves that of their
    activations. The estimated memory of CUDA kernels is left out, since rounding up adds more than that on average. A
    model with `handler: shared` requires the memory of its proxy process and of its weights. A model with `handler:
    shared` reserves the memory of the engine processes during the largest forward passes of all shared models (on a GPU
    one pass per engine process, on a CPU two), since any of these models may be loaded first and so start the engine
    process. So adding a shared model with a larger forward
    pass changes the memory keys of all shared models.
    """
    known = {name: entry for name, entry in catalog.models.items() if entry.model_id in profiles}
    on_gpu = _on_gpu(catalog, catalog.endpoint.instance_type)
    shared = {
        name: demand_of(name, entry, profiles[entry.model_id], on_gpu=on_gpu)
        for name, entry in known.items()
        if entry.handler == SHARED
    }
    count = catalog.endpoint.engines_per_device
    on_host = shared_engines(list(shared.values()), count=count, on_gpu=on_gpu)
    on_card = shared_engines(list(shared.values()), count=count, on_gpu=True)
    keys = {}
    for name, entry in known.items():
        if on_host is not None and on_card is not None and name in shared:
            keys[name] = _beside_others(shared[name], on_host, on_card, on_gpu=on_gpu)
        else:
            keys[name] = _on_its_own(name, entry, profiles[entry.model_id])
    return keys


def _on_its_own(name: str, entry: ModelEntry, profile: Profile) -> RequiredMemory:
    demand = demand_of(name, entry, profile, on_gpu=True)
    worker = gpu_worker(demand)
    host = host_worker_mib(demand, on_gpu=True) * demand.workers
    if entry.cpu is not None:
        on_cpu = demand_of(name, entry, profile, on_gpu=False)
        host = max(host, host_worker_mib(on_cpu, on_gpu=False) * on_cpu.workers)
    return RequiredMemory(
        required_memory_mb=_rounded_up(host),
        gpu_required_memory_mb=_rounded_up(worker.idle * demand.workers),
        reserved_memory_mb=_rounded_up((worker.activations + worker.slack) * demand.workers),
    )


def _beside_others(demand: Demand, on_host: SharedEngines, on_card: SharedEngines, *, on_gpu: bool) -> RequiredMemory:
    """Return the memory keys of a shared model; on a GPU, its weights need host memory only during their conversion."""
    host = host_worker_mib(demand, on_gpu=on_gpu)
    process = on_card.gpu
    passes = 0.0 if process is None else (process.activations + process.slack) * on_card.count
    return RequiredMemory(
        required_memory_mb=_rounded_up(host + demand.loading_mib - (0.0 if on_gpu else demand.weight_mib)),
        gpu_required_memory_mb=_rounded_up(demand.weight_mib),
        reserved_memory_mb=_rounded_up(on_host.host_mib),
        gpu_reserved_memory_mb=_rounded_up(on_card.gpu_check_mib + passes),
    )


def with_derived_memory(catalog: Catalog, profiles: Mapping[str, Profile]) -> Catalog:
    """Return the catalog with derived memory keys for each model that has a profile and no memory key of its own."""
    derived = {}
    for name, memory in required_memory(catalog, profiles).items():
        entry = catalog.models[name]
        stated = (entry.required_memory_mb, entry.reserved_memory_mb)
        of_the_gpu = (entry.gpu.required_memory_mb, entry.gpu.reserved_memory_mb)
        if any(value is not None for value in (*stated, *of_the_gpu)):
            continue
        keys = {"required_memory_mb": memory.required_memory_mb, "reserved_memory_mb": memory.reserved_memory_mb}
        on_gpu = {
            "required_memory_mb": memory.gpu_required_memory_mb,
            "reserved_memory_mb": memory.gpu_reserved_memory_mb,
        }
        derived[name] = entry.model_copy(update={**keys, "gpu": entry.gpu.model_copy(update=on_gpu)})
    return catalog.model_copy(update={"models": {**catalog.models, **derived}}) if derived else catalog


def _rounded_up(mib: float) -> int:
    return math.ceil(mib / STEP_MIB) * STEP_MIB
