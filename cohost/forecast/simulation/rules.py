"""The scaling settings of a replay: the catalog's, with overrides, and the times at which scheduled entries fire."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from cohost.catalog.checks import scaling_faults
from cohost.catalog.faults import faults_of
from cohost.catalog.models import Endpoint
from cohost.catalog.sections.scaling import Scaling
from cohost.catalog.serving import copies_per_instance
from cohost.endpoint.schedules import next_time
from cohost.errors import SimulationError
from cohost.routing import MULTI_MODEL, SCALE_TO_ZERO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cohost.catalog.models import Catalog
    from cohost.catalog.sections.scaling import Metric, ScheduledScaling
    from cohost.forecast.simulation.traces import Trace


MOST_SETTINGS: Final = 500
TOPOLOGIES: Final = (MULTI_MODEL, SCALE_TO_ZERO)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The scaling of one topology, in the catalog's names; `start` is its capacity after the deploy, which is never 0.

    `tracking_scales_in`: true if target tracking also scales in. `per_instance`: copies that share an instance, since
    each takes one GPU.
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
    """Return each combination of the overriding values, with the rules of both topologies.

    All other values are the catalog's. A catalog without scaling keeps its number of instances. The minimum of a
    multi-model endpoint is 1 or more; that of scale-to-zero is 0 if the catalog's minimum belongs to the other
    topology.

    Args:
        catalog: the deployed catalog.
        overrides: values by the name of a scaling key; several values are a sweep.

    Raises:
        SimulationError: a value is not allowed, or contradicts another; or there are over 500 combinations.
    """
    combinations = [dict(zip(overrides, values, strict=True)) for values in product(*overrides.values())]
    if len(combinations) > MOST_SETTINGS:
        raise SimulationError(
            f"{len(combinations)} combinations of settings; allowed: {MOST_SETTINGS}; fix: fewer values for an option"
        )
    return [(chosen, [_rules(catalog, topology, chosen) for topology in TOPOLOGIES]) for chosen in combinations]


def _rules(catalog: Catalog, topology: str, chosen: Mapping[str, Any]) -> Rules:
    scaling = _scaling(catalog, topology, chosen)
    return Rules(
        topology=topology,
        min=scaling.min,
        max=scaling.max,
        metric=scaling.metric,
        target=scaling.target,
        scale_in_cooldown=scaling.scale_in_cooldown,
        scale_out_cooldown=scaling.scale_out_cooldown,
        idle_minutes=scaling.idle_minutes,
        schedule=scaling.schedule,
        tracking_scales_in=scaling.tracking_scales_in,
        start=_checked_start(catalog, topology, scaling),
        per_instance=copies_per_instance(catalog.endpoint.instance_type) if topology == SCALE_TO_ZERO else 1,
    )


def _scaling(catalog: Catalog, topology: str, chosen: Mapping[str, Any]) -> Scaling:
    """Return the settings of a topology: the catalog's, with the chosen values in their place."""
    stated = _catalog_settings(catalog)
    if "metric" in chosen and "target" not in chosen and chosen["metric"] != stated["metric"]:
        raise SimulationError(
            f"--metric: {chosen['metric']!r} without a target; allowed: both; fix: add --target, calls a minute for "
            "invocations, calls at a time for concurrency"
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
        faults = faults_of(error, Scaling, settings)
        raise SimulationError("\n".join(f"scaling.{fault}" for fault in faults)) from error


def _catalog_settings(catalog: Catalog) -> dict[str, Any]:
    if catalog.scaling is not None:
        schedule = [entry.model_dump(exclude_unset=True) for entry in catalog.scaling.schedule]
        return catalog.scaling.model_dump() | {"schedule": schedule}
    count = catalog.endpoint.initial_instance_count
    return Scaling(min=count, max=count).model_dump()


def _checked_start(catalog: Catalog, topology: str, scaling: Scaling) -> int:
    """Return the capacity after the deploy, once settings and topology are checked against each other."""
    given = catalog.endpoint
    asked = given.initial_instance_count if given.topology == MULTI_MODEL else given.copy_count
    start = min(max(asked, scaling.min, 1), max(scaling.max, 1))
    key = "initial_instance_count" if topology == MULTI_MODEL else "copy_count"
    endpoint = Endpoint.model_validate(
        {
            "name": "simulated",
            "instance_type": given.instance_type,
            "image": given.image,
            "topology": topology,
            key: start,
        }
    )
    faults = list(scaling_faults(catalog.model_copy(update={"endpoint": endpoint, "scaling": scaling})))
    if faults:
        raise SimulationError("\n".join(map(str, faults)))
    return start


def bound_changes(rules: Rules, due: Iterator[tuple[float, ScheduledScaling]]) -> Iterator[tuple[float, int, int]]:
    """Yield the bounds set by a schedule's entries, by second; a bound that an entry leaves out stays as it was."""
    least, most = rules.min, rules.max
    for at, entry in due:
        least = least if entry.min is None else entry.min
        most = most if entry.max is None else entry.max
        yield at, least, max(most, least)


def due_in(trace: Trace) -> Callable[[ScheduledScaling], Iterator[float]]:
    """Return a function that yields the seconds of a trace at which an entry fires, in order.

    A rate counts from the trace's start, as from a deploy.
    """
    start = trace.start.timestamp()
    end = start + trace.seconds

    def due(entry: ScheduledScaling) -> Iterator[float]:
        at = next_time(entry.cron, entry.timezone, start - 1, start=start)
        while at is not None and at < end:
            yield at - start
            at = next_time(entry.cron, entry.timezone, at, start=start)

    return due
