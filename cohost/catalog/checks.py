"""Rules of a catalog's scaling that span several values, or scaling and the endpoint's topology."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.catalog.sections.scaling import TRACKING_TAIL_MINUTES
from cohost.routing import COMPONENT_SUFFIX, MULTI_MODEL, SCALE_TO_ZERO, component_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cohost.catalog.models import Catalog, Endpoint
    from cohost.catalog.sections.scaling import Metric, Scaling
    from cohost.catalog.yaml_source import Location

Placed = tuple["Location", str]
"""A path in the file, and what is wrong there as `what; allowed: …; fix: …`."""

TARGETS: Final[Mapping[Metric, tuple[float, float]]] = {"concurrency": (0.1, 1000), "invocations": (1, 1_000_000)}
NAME_CHARACTERS: Final = 63

_UNITS: Final[Mapping[Metric, str]] = {"concurrency": "calls at a time", "invocations": "calls a minute"}
_ZERO_ALLOWED: Final = "1 or more, because SageMaker takes 0 only for endpoints of inference components"
_ZERO_FIX: Final = "write topology: scale-to-zero under endpoint, or min: 1"


def scaling_faults(catalog: Catalog) -> Iterator[Placed]:
    """Yield a fault for each setting of scaling or topology that does not go with the others."""
    yield from _topology_faults(catalog.endpoint)
    if (scaling := catalog.scaling) is None:
        return
    yield from _bound_faults(scaling, catalog.endpoint)
    yield from _tracking_faults(scaling)
    yield from _idle_faults(scaling, catalog.endpoint.topology)
    yield from _schedule_faults(scaling, catalog.endpoint.topology)


def _topology_faults(endpoint: Endpoint) -> Iterator[Placed]:
    """Yield the endpoint's keys that the chosen topology does not read."""
    if endpoint.topology == MULTI_MODEL:
        fixes = {"copy_count": "write initial_instance_count"}
        other = SCALE_TO_ZERO
    else:
        fixes = {
            "initial_instance_count": "write copy_count, and the bounds under scaling",
            "model_cache_setting": "take it out; the component holds all models all the time",
        }
        other = MULTI_MODEL
    for key, fix in fixes.items():
        if key in endpoint.model_fields_set:
            what = f"{key} with topology {endpoint.topology} would do nothing"
            yield _fault(("endpoint", key), what, f"with topology {other} only", fix)
    if endpoint.topology == SCALE_TO_ZERO and len(component_name(endpoint.name)) > NAME_CHARACTERS:
        most = NAME_CHARACTERS - len(COMPONENT_SUFFIX)
        what = f"{endpoint.name!r} has {len(endpoint.name)} characters"
        allowed = f"{most} with topology {SCALE_TO_ZERO}, whose component is named {component_name('NAME')}"
        yield _fault(("endpoint", "name"), what, allowed, "shorten the name")


def _bound_faults(scaling: Scaling, endpoint: Endpoint) -> Iterator[Placed]:
    if scaling.min > scaling.max:
        what = f"min {scaling.min} is over max {scaling.max}"
        yield _fault(("scaling", "min"), what, "min up to max", "raise max or lower min")
        return
    if endpoint.topology == MULTI_MODEL and scaling.min == 0:
        what = f"min 0 with topology {MULTI_MODEL} is not allowed"
        yield _fault(("scaling", "min"), what, _ZERO_ALLOWED, _ZERO_FIX)
    key = "initial_instance_count" if endpoint.topology == MULTI_MODEL else "copy_count"
    start = getattr(endpoint, key)
    if not max(scaling.min, 1) <= start <= scaling.max:
        allowed = f"{max(scaling.min, 1)} to {scaling.max}, within min and max"
        yield _fault(("endpoint", key), f"{key} {start} is outside of scaling", allowed, "change it, or the bounds")


def _tracking_faults(scaling: Scaling) -> Iterator[Placed]:
    place: Location = ("scaling", "target")
    stated = {"metric", "target"} & scaling.model_fields_set
    if len(stated) == 1:
        fix = "state metric: concurrency with calls at a time, or metric: invocations with calls a minute"
        yield _fault(("scaling", *stated), f"{stated.pop()} stands alone", "metric and target, or neither", fix)
        return
    least, most = TARGETS[scaling.metric]
    if not least <= scaling.target <= most:
        what = f"target {scaling.target:g} with metric {scaling.metric} is not allowed"
        allowed = f"{least:g} to {most:.0f} {_UNITS[scaling.metric]} for each instance or copy"
        yield _fault(place, what, allowed, "change the target, or the metric")


def _idle_faults(scaling: Scaling, topology: str) -> Iterator[Placed]:
    place: Location = ("scaling", "idle_minutes")
    minutes = scaling.idle_minutes
    if minutes is None:
        return
    if topology == MULTI_MODEL:
        what = f"idle_minutes with topology {MULTI_MODEL} is not allowed"
        fix = f"take it out, since tracking goes down to min by itself, or write topology: {SCALE_TO_ZERO}"
        yield _fault(place, what, f"with topology {SCALE_TO_ZERO} only", fix)
    elif scaling.tracking_scales_in and minutes > (tail := TRACKING_TAIL_MINUTES[scaling.metric]):
        what = (
            f"{minutes} with up to {scaling.highest} copies would do nothing, because target tracking goes down to min "
            f"after {tail} minutes of idling"
        )
        yield _fault(place, what, f"1 to {tail}, or with max: 1 any", "lower it, or write max: 1")


def _schedule_faults(scaling: Scaling, topology: str) -> Iterator[Placed]:
    names: set[str] = set()
    for index, entry in enumerate(scaling.schedule):
        place: Location = ("scaling", "schedule", index)
        if entry.name in names:
            yield _fault((*place, "name"), f"{entry.name!r} stands twice", "each name once", "rename one")
        names.add(entry.name)
        if "timezone" in entry.model_fields_set and entry.cron.startswith("rate("):
            what = f"timezone with {entry.cron} would do nothing"
            yield _fault((*place, "timezone"), what, "with cron(…) and at(…) only", "take it out")
        if topology == MULTI_MODEL and entry.min == 0:
            what = f"min 0 with topology {MULTI_MODEL} is not allowed"
            yield _fault((*place, "min"), what, _ZERO_ALLOWED, _ZERO_FIX)
        low = scaling.min if entry.min is None else entry.min
        high = scaling.max if entry.max is None else entry.max
        if low > high:
            what = f"{entry.name!r} leaves min {low} over max {high}"
            allowed = "min up to max; what an entry leaves out counts as under scaling"
            yield _fault(place, what, allowed, "state both bounds")


def _fault(place: Location, what: str, allowed: str, fix: str) -> Placed:
    return place, f"{what}; allowed: {allowed}; fix: {fix}"
