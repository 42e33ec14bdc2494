"""Checks of a catalog's models before a deploy: handlers, network, instance type, revisions and bill.

The checks find models that their handlers cannot serve (the rules of `cohost engines`), files that containers cannot
fetch from the catalog's network, models that do not fit the instance or have no pinned revision, and an unknown price.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.archives.handlers import ENGINE_HANDLERS, SHARED
from cohost.catalog.sections.scaling import TRACKED_BY_DEFAULT
from cohost.engine_support import TRANSFORMERS_SDPA, facts_of, head_faults
from cohost.errors import PlanError
from cohost.forecast.plan.capacity import first_change
from cohost.forecast.plan.memory import plan_catalog, plan_demands, required_memory
from cohost.forecast.pricing.price_list import price_note, today
from cohost.hardware.instances import INSTANCES
from cohost.routing import MULTI_MODEL, SCALE_TO_ZERO
from constructs_lib.checks.component import component_misfits, startup_memory_misfits
from constructs_lib.checks.findings import Misfit, error, some, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cohost.catalog.models import Catalog, ModelEntry, Network
    from cohost.engine_support import ModelFacts
    from cohost.forecast.plan.memory import MemoryPlan, ModelPlan
    from cohost.forecast.plan.profiles import Profile
    from cohost.forecast.pricing.price_list import PriceList
    from cohost.hardware.images import Image


_OF_DEBERTA: Final = ("disentangled-flash", "flashdeberta")


def engine_misfits(catalog: Catalog, profiles: Mapping[str, Profile]) -> Iterator[Misfit]:
    """Yield an objection for each model of known architecture that does not suit its task or attention setting."""
    for name, entry in catalog.models.items():
        model = facts_of(name, entry, profiles)
        yield from _task_misfits(model)
        yield from _attention_misfits(model, entry)


def _task_misfits(model: ModelFacts) -> Iterator[Misfit]:
    for reason in head_faults(model):
        yield error(
            "model-task",
            f"models.{model.name}.task: {model.task!r} does not suit {model.model_id}: {reason.text} "
            f"({reason.source}); allowed: what the model was trained for; fix: another task, such as "
            "feature-extraction for a model without a head, or another model_id",
        )


def _attention_misfits(model: ModelFacts, entry: ModelEntry) -> Iterator[Misfit]:
    attention = None if entry.engine_settings is None else entry.engine_settings.attention
    if model.deberta and attention == "sdpa":
        yield error(
            "model-attention",
            f"models.{model.name}.{entry.handler}.attention: 'sdpa' fails to load with {model.architecture} "
            f"({TRANSFORMERS_SDPA}); allowed: auto, eager, {', '.join(_OF_DEBERTA)}; fix: leave attention out",
        )
    if attention in _OF_DEBERTA and model.model_type is not None and not model.deberta:
        yield warning(
            "attention-unused",
            f"models.{model.name}.{entry.handler}.attention: {attention!r} is for DeBERTa, and {model.model_id} is "
            f"{model.model_type}, which runs as if it were not written; fix: leave attention out",
        )


def network_misfits(catalog: Catalog) -> Iterator[Misfit]:
    """Yield an objection for each requirement of the catalog's models that the catalog's network does not meet."""
    packed = [name for name, entry in catalog.models.items() if entry.weights == "archive"]
    if packed and catalog.endpoint.topology == SCALE_TO_ZERO:
        yield error(
            "weights-archive",
            f"models: {some(packed)} with weights: archive and topology {SCALE_TO_ZERO}, whose one archive holds the "
            "settings of all models; allowed: hub or s3; fix: weights: s3, or topology: multi-model",
        )
    network = catalog.network
    if network is None:
        return
    fetching = [name for name, entry in catalog.models.items() if entry.weights != "archive"]
    if network.isolation and fetching:
        yield error(
            "network-isolation",
            f"network.isolation: an isolated container reaches neither the Hub nor S3, so {some(fetching)}, whose "
            "archives hold settings only, could not load; allowed: models whose weights lie in their archives; fix: "
            "weights: archive (`cohost weights push`), or without isolation subnets that lead to S3 alone "
            "(network.route_tables or network.s3_endpoint) and weights: s3",
        )
    if network.in_vpc and not network.internet:
        yield from _without_internet(catalog, network)


def _without_internet(catalog: Catalog, network: Network) -> Iterator[Misfit]:
    on_hub = [name for name, entry in catalog.models.items() if entry.from_hub]
    if on_hub:
        yield error(
            "network-hub",
            f"network.vpc: containers in {network.vpc} cannot fetch {some(on_hub)} from the Hub, since nothing says "
            "that the subnets lead to the internet; allowed: weights in S3, or subnets with a way out; fix: weights: "
            "s3, or network.internet: true if the subnets' routes go to a NAT gateway",
        )
    if network.s3_endpoint is None and not network.route_tables:
        yield error(
            "network-s3",
            f"network.vpc: containers in {network.vpc} cannot fetch archives, since nothing says how the subnets reach "
            "S3; allowed: an S3 gateway endpoint, or subnets with a way out; fix: network.route_tables with the "
            "subnets' route tables to have one made, or network.s3_endpoint: given if the VPC has it",
        )


_OFFLINE_VARIABLES: Final = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def catalog_misfits(
    catalog: Catalog, image: Image, profiles: Mapping[str, Profile], prices: PriceList, region: str
) -> list[Misfit]:
    """Return every objection to a catalog's models on its instance type, and to an unknown price."""
    return [
        *_memory_misfits(catalog, profiles),
        *engine_misfits(catalog, profiles),
        *_worker_misfits(catalog, image),
        *_revision_misfits(catalog),
        *_offline_misfits(catalog),
        *component_misfits(catalog, image),
        *network_misfits(catalog),
        *_metric_misfits(catalog),
        *_price_misfits(catalog, prices, region),
    ]


def _memory_misfits(catalog: Catalog, profiles: Mapping[str, Profile]) -> Iterator[Misfit]:
    try:
        plan = plan_catalog(catalog, profiles)
    except PlanError:  # `misfits` warns of an instance type that is in no table
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
    engines = 1 if plan.engines is None else plan.engines.count
    return plan_demands(
        [model.demand],
        instance_type=plan.instance_type,
        on_gpu=model.gpu is not None,
        engines_per_device=engines,
    )


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
    """Yield a warning if models fit alone but not together: SageMaker then unloads one to load another (slow)."""
    if not plan.gpu_fits:
        yield warning(
            "gpu-memory",
            f"models: all workers take {plan.gpu_used_mib:,.0f} of {plan.gpu_usable_mib:,.0f} MiB of one "
            f"{plan.instance.gpu_name}, so models are unloaded for one another; fix: {first_change(plan)}",
        )
    if not plan.host_fits:
        yield warning(
            "host-memory",
            f"models: all workers take {plan.host_used_mib:,.0f} of {plan.instance.memory_mib:,} MiB of the host's "
            f"memory, so models are unloaded for one another; fix: {first_change(plan)}",
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
    """Yield a warning for each model that needs more memory than stated: it would load, but fail under many calls."""
    keys = required_memory(catalog, profiles)
    for model in plan.models:
        entry, needed = catalog.models[model.name], keys[model.name]
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
    # An archive with a handler of the project always states its workers.
    unbound = [
        name for name, entry in catalog.models.items() if entry.cpu is None and entry.handler not in ENGINE_HANDLERS
    ]
    if unbound:
        yield warning(
            "cpu-workers-unbound",
            f"models: {some(unbound)} without cpu.minWorkers and cpu.maxWorkers, so the server starts one worker for "
            f"each of {instance.vcpus} cores; fix: cpu: {{minWorkers: 1, maxWorkers: 1}}",
        )
    # Shared models compute in the engine processes; their own workers, proxy processes, do not.
    own = [entry for entry in catalog.models.values() if entry.handler != SHARED]
    workers = sum(entry.cpu.max_workers for entry in own if entry.cpu is not None)
    workers += 0 if len(own) == len(catalog.models) else catalog.endpoint.engines_per_device
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


def _metric_misfits(catalog: Catalog) -> Iterator[Misfit]:
    scaling = catalog.scaling
    if scaling is not None and scaling.metric == "concurrency" and catalog.endpoint.topology == MULTI_MODEL:
        calls = TRACKED_BY_DEFAULT[MULTI_MODEL]["target"]
        yield warning(
            "scaling-metric",
            "scaling.metric: 'concurrency' is not known to have values on a multi-model endpoint, and without values "
            "nothing scales (AWS recommends InvocationsPerInstance there); allowed: invocations, or what you saw scale "
            f"under load; fix: metric: invocations with target: {calls:g} calls a minute to begin with",
        )


def _price_misfits(catalog: Catalog, prices: PriceList, region: str) -> Iterator[Misfit]:
    instance_type = catalog.endpoint.instance_type
    price = prices.find(region, instance_type)
    if note := price_note(price, region, instance_type, today()):
        yield warning("price-unknown" if price is None else "price-old", f"endpoint.instance_type: {note}")
