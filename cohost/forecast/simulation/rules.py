"""Compute the scaling settings of a replay (the catalog's, with overrides), and the times of scheduled scaling."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from cohost.catalog.checks import scaling_faults
from cohost.catalog.faults import faults_of
from cohost.catalog.models import Endpoint
from cohost.catalog.sections.scaling import TRACKED_BY_DEFAULT, Scaling
from cohost.catalog.serving import copies_per_instance
from cohost.endpoint.schedules import next_time
from cohost.errors import SimulationError, SimulationFaultsError
from cohost.routing import MULTI_MODEL, SCALE_TO_ZERO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cohost.catalog.models import Catalog
    from cohost.catalog.sections.scaling import Metric, ScheduledScaling
    from cohost.errors import CatalogError
    from cohost.forecast.simulation.traces import Trace


MOST_SETTINGS: Final = 500
TOPOLOGIES: Final = (MULTI_MODEL, SCALE_TO_ZERO)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The scaling settings of one topology, most of them named like the keys of the catalog's `scaling`.

    `start`: the capacity after the deploy, which is never 0. `tracking_scales_in`: True if target tracking also scales
    in. `per_instance`: the number of copies that fit on one instance, where each copy takes one GPU.
    """

    topology: str
    min: int
    max: int
    metric: Metric
    target: float
    scale_in_cooldown: float
    scale_out_cooldown: float
    idle_minutes: int | None = None
    schedule: tuple[ScheduledScaling, ...] = ()
    tracking_scales_in: bool = True
    start: int = 1
    per_instance: int = 1


def rules_of(catalog: Catalog, overrides: Mapping[str, Sequence[Any]]) -> list[tuple[Mapping[str, Any], list[Rules]]]:
    """Return each combination of the overriding values, with the resulting rules of both topologies.

    `overrides` holds one or more values per scaling key; several values are a sweep. All other settings are the
    catalog's. If the catalog has no scaling, the minimum and the maximum are its number of instances. The minimum of a
    multi-model endpoint is 1 or more. The minimum of a scale-to-zero endpoint is 0 if the catalog's own topology is
    multi-model and no override states a minimum.

    Raises:
        SimulationError: a value is not allowed or contradicts another value, or there are over 500 combinations.
    """
    combinations = [dict(zip(overrides, values, strict=True)) for values in product(*overrides.values())]
    if len(combinations) > MOST_SETTINGS:
        raise SimulationError(
            "sweep-large",
            "settings",
            f"are {len(combinations)} combinations",
            allowed=f"{MOST_SETTINGS}",
            fix="give fewer values to an option",
        )
    return [(chosen, [_rules(catalog, topology, chosen) for topology in TOPOLOGIES]) for chosen in combinations]


def _rules(catalog: Catalog, topology: str, chosen: Mapping[str, Any]) -> Rules:
    scaling = _scaling(catalog, topology, chosen)
    return Rules(
        topology=topology,
        **{name: getattr(scaling, name) for name in (*Scaling.model_fields, "tracking_scales_in")},
        start=_checked_start(catalog, topology, scaling),
        per_instance=copies_per_instance(catalog.endpoint.instance_type) if topology == SCALE_TO_ZERO else 1,
    )


def _scaling(catalog: Catalog, topology: str, chosen: Mapping[str, Any]) -> Scaling:
    """Return the scaling settings of a topology: the catalog's settings, replaced by the chosen values."""
    stated = _catalog_settings(catalog)
    # Each topology has its own default of metric and target, so the other topology does not take over the catalog's.
    if stated.items() >= TRACKED_BY_DEFAULT[catalog.endpoint.topology].items() and not {"metric", "target"} & {*chosen}:
        stated = {**stated, **TRACKED_BY_DEFAULT[topology]}
    if "metric" in chosen and "target" not in chosen and chosen["metric"] != stated["metric"]:
        raise SimulationError(
            "target-missing",
            "--metric",
            f"{chosen['metric']!r} is given without a target",
            fix="add --target: calls per minute for invocations, calls at a time for concurrency",
        )
    settings = {**stated, **chosen}
    settings["max"] = max(settings["max"], settings["min"], 1) if "max" not in chosen else settings["max"]
    if topology == MULTI_MODEL:
        settings["min"] = 1 if settings["min"] == 0 else settings["min"]
        settings["idle_minutes"] = None
        settings["schedule"] = [one | {"min": 1} if one.get("min") == 0 else one for one in settings["schedule"]]
    elif "min" not in chosen and catalog.endpoint.topology == MULTI_MODEL:
        settings["min"] = 0
    try:
        return Scaling.model_validate(settings)
    except ValidationError as error:
        raise _refusal(faults_of(error, Scaling, settings), "scaling.") from error


def _catalog_settings(catalog: Catalog) -> dict[str, Any]:
    if catalog.scaling is not None:
        schedule = [entry.model_dump(exclude_unset=True) for entry in catalog.scaling.schedule]
        return catalog.scaling.model_dump() | {"schedule": schedule}
    count = catalog.endpoint.initial_instance_count
    return {**Scaling(min=count, max=count).model_dump(), **TRACKED_BY_DEFAULT[MULTI_MODEL]}


def _checked_start(catalog: Catalog, topology: str, scaling: Scaling) -> int:
    """Return the capacity after the deploy, and check the settings against the topology.

    Raises:
        SimulationError: the settings do not fit the topology.
    """
    given = catalog.endpoint
    initial = given.initial_instance_count if given.topology == MULTI_MODEL else given.copy_count
    start = min(max(initial, scaling.min, 1), max(scaling.max, 1))
    key = "initial_instance_count" if topology == MULTI_MODEL else "copy_count"
    kept = given.model_dump(include={"instance_type", "image"})
    endpoint = Endpoint.model_validate({"name": "simulated", "topology": topology, key: start, **kept})
    if faults := list(scaling_faults(catalog.model_copy(update={"endpoint": endpoint, "scaling": scaling}))):
        raise _refusal(faults)
    return start


def _refusal(faults: Iterable[CatalogError], above: str = "") -> SimulationError:
    return SimulationFaultsError(
        [
            SimulationError("scaling-invalid", above + fault.field, fault.problem, allowed=fault.allowed, fix=fault.fix)
            for fault in faults
        ]
    )


def bound_changes(rules: Rules, trace: Trace) -> Iterator[tuple[float, int, int]]:
    """Yield each change of bounds by the schedule during a trace, as its second, the minimum and the maximum capacity.

    If an entry of the schedule states only one bound, the other bound stays unchanged.
    """
    least, most = rules.min, rules.max
    times = [(at, index) for index, entry in enumerate(rules.schedule) for at in due(entry, trace)]
    for at, index in sorted(times):
        entry = rules.schedule[index]
        least = least if entry.min is None else entry.min
        most = most if entry.max is None else entry.max
        yield at, least, max(most, least)


def due(entry: ScheduledScaling, trace: Trace) -> Iterator[float]:
    """Yield the seconds of a trace at which a schedule entry takes effect; a rate counts from the trace's start."""
    start = trace.start.timestamp()
    at = next_time(entry.cron, entry.timezone, start - 1, start=start)
    while at is not None and at < start + trace.seconds:
        yield at - start
        at = next_time(entry.cron, entry.timezone, at, start=start)
