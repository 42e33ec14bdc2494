"""A plan as plain data for scripts: the same figures as the tables, in MiB rounded to a tenth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cohost.plan.capacity import first_change, room_of
from cohost.plan.required import derive
from cohost.scaling.instance_bounds import instance_bounds

if TYPE_CHECKING:
    from cohost.catalog.loader import LoadedCatalog
    from cohost.fleet import Fleet
    from cohost.plan.memory import MemoryPlan, ModelPlan


def plan_as_data(loaded: LoadedCatalog, plan: MemoryPlan) -> dict[str, Any]:
    """Return a memory plan as JSON takes it."""
    rooms = {room.name: room for room in room_of(plan)}
    return {
        "instance_type": plan.instance_type,
        "instances": dict(zip(("least", "most"), instance_bounds(loaded.catalog), strict=True)),
        "gpus": plan.instance.gpus,
        "gpu_name": plan.instance.gpu_name,
        "gpu_usable_mib": plan.gpu_usable_mib,
        "gpu_idle_mib": _mib(plan.gpu_idle_mib),
        "gpu_used_mib": _mib(plan.gpu_used_mib),
        "host_mib": plan.instance.memory_mib,
        "host_used_mib": _mib(plan.host_used_mib),
        "fits": plan.fits,
        "tight": plan.tight,
        "first_change": first_change(plan),
        "models": {
            model.name: _model(loaded, model)
            | {"largest_workers": rooms[model.name].workers, "largest_batch": rooms[model.name].batch}
            for model in plan.models
        },
        "without_profile": list(plan.unknown),
    }


def fleet_as_data(fleet: Fleet) -> dict[str, Any]:
    """A fleet as JSON takes it: each option with the models of every endpoint."""
    return {
        "models": fleet.models,
        "workers": fleet.workers,
        "options": [
            {
                "instance_type": option.instance_type,
                "endpoints": [list(placement.names) for placement in option.placements],
                "usd_per_hour": option.usd_per_hour,
                "usd_per_month": option.usd_per_month,
                "usd_per_million": option.usd_per_million,
            }
            for option in fleet.options
        ],
        "left_out": list(fleet.left_out),
    }


def _model(loaded: LoadedCatalog, model: ModelPlan) -> dict[str, Any]:
    entry = loaded.catalog.models[model.name]
    derived = model.name in loaded.derived_memory
    planned = derive(model.name, entry, loaded.profiles[entry.model_id])
    gpu = model.gpu
    parts = (
        None
        if gpu is None
        else {
            "context_mib": _mib(gpu.context),
            "weights_mib": _mib(gpu.weights),
            "activations_mib": _mib(gpu.activations),
            "slack_mib": _mib(gpu.slack),
            "idle_mib": _mib(gpu.idle),
            "peak_mib": _mib(gpu.peak),
        }
    )
    return {
        "workers": model.demand.workers,
        "batch": model.demand.batch,
        "tokens": model.demand.tokens,
        "dtype": model.demand.dtype or model.demand.profile.checkpoint_dtype,
        "gpu_worker": parts,
        "host_worker_mib": _mib(model.host_mib),
        "required_memory_mb": {
            "catalog": None if derived else entry.required_memory_mb,
            "planned": planned.required_memory_mb,
        },
        "gpu.required_memory_mb": {
            "catalog": None if derived else entry.gpu.required_memory_mb,
            "planned": planned.gpu_required_memory_mb,
        },
        "reserved_memory_mb": {
            "catalog": None if derived else entry.reserved_memory_mb,
            "planned": planned.reserved_memory_mb,
        },
    }


def _mib(value: float) -> float:
    return round(value, 1)
