"""The section `scaling`: defaults of each topology, and settings that do not fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from fakes.refusals import refused

from cohost.catalog.checks import check_catalog
from cohost.catalog.models import Catalog
from cohost.catalog_file import load_catalog
from cohost.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

ZERO: dict[str, Any] = {"topology": "scale-to-zero"}


def content(endpoint: dict[str, Any] | None = None, scaling: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return valid catalog data with additions to the endpoint and a scaling section."""
    base = {"name": "nli", "instance_type": "ml.g5.xlarge", "image": "djl-inference:0.36.0-lmi26.0.0-cu130"}
    data: dict[str, Any] = {"endpoint": base | (endpoint or {})}
    if scaling is not None:
        data["scaling"] = scaling
    return data | {"models": {"nli": {"model_id": "org/nli", "task": "text-classification"}}}


def faults_of(path: Path, endpoint: dict[str, Any], scaling: dict[str, Any] | None) -> list[tuple[int, str, str]]:
    """Return line, code and field of each fault of a catalog file with these settings."""
    path.write_text(yaml.safe_dump(content(endpoint, scaling), sort_keys=False), encoding="utf-8")
    with pytest.raises(CatalogError) as caught:
        load_catalog(path)
    return [(entry["line"], entry["code"], entry["field"]) for entry in caught.value.entries()]


def test_scale_to_zero_needs_no_scaling_section() -> None:
    """A scale-to-zero catalog without `scaling` has 0 to 1 copies."""
    scaling = Catalog.model_validate(content(ZERO)).scaling

    assert scaling is not None
    assert (scaling.min, scaling.max, scaling.metric, scaling.target) == (0, 1, "concurrency", 4)
    assert (scaling.scale_in_cooldown, scaling.scale_out_cooldown, scaling.idle_minutes) == (300, 60, None)
    assert scaling.schedule == ()


def test_scale_to_zero_fills_in_the_bound_that_is_left_out() -> None:
    """A scale-to-zero catalog that sets only `max` has a minimum of 0."""
    scaling = Catalog.model_validate(content(ZERO, {"max": 3})).scaling

    assert scaling is not None
    assert (scaling.min, scaling.max) == (0, 3)


@pytest.mark.parametrize("topology", [{}, {"topology": "multi-model"}])
def test_multi_model_tracks_calls_a_minute(topology: dict[str, Any]) -> None:
    """A multi-model endpoint tracks invocations by default, as AWS recommends; a stated metric is kept."""
    scaling = Catalog.model_validate(content(topology, {"min": 1, "max": 2})).scaling
    stated = Catalog.model_validate(
        content(topology, {"min": 1, "max": 2, "metric": "concurrency", "target": 8})
    ).scaling

    assert scaling is not None
    assert stated is not None
    assert (scaling.metric, scaling.target) == ("invocations", 1000)
    assert (stated.metric, stated.target) == ("concurrency", 8)


def test_multi_model_does_not_scale_unless_asked() -> None:
    """A multi-model catalog without `scaling` has the stated number of instances."""
    assert Catalog.model_validate(content()).scaling is None


def test_catalog_made_in_memory_is_held_to_the_same_rules() -> None:
    """A catalog that was built in memory is checked by the same rules as a file."""
    with refused("zero-not-allowed", "scaling.min", kind=CatalogError):
        check_catalog(Catalog.model_validate(content(scaling={"min": 0, "max": 1})))


def test_bounds_count_the_schedule_in() -> None:
    """The lowest and highest capacity include the bounds of every entry of the schedule."""
    entries = [
        {"name": "day", "cron": "cron(0 8 ? * MON-FRI *)", "timezone": "Asia/Seoul", "min": 2, "max": 6},
        {"name": "night", "cron": "cron(0 20 ? * * *)", "min": 0},
    ]
    scaling = Catalog.model_validate(
        content(ZERO | {"copy_count": 2}, {"min": 1, "max": 4, "schedule": entries})
    ).scaling

    assert scaling is not None
    assert (scaling.lowest, scaling.highest) == (0, 6)
    assert [entry.timezone for entry in scaling.schedule] == ["Asia/Seoul", "UTC"]


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [({"max": 1}, True), ({"max": 1, "idle_minutes": 60}, False), ({"max": 2, "idle_minutes": 5}, True)],
)
def test_tracking_leaves_the_last_copy_to_the_idle_time(*, scaling: dict[str, Any], expected: bool) -> None:
    """With one copy only `idle_minutes` ends it, because target tracking does not scale in then."""
    read = Catalog.model_validate(content(ZERO, scaling)).scaling

    assert read is not None
    assert read.tracking_scales_in is expected


_ENTRY = {"name": "day", "cron": "cron(0 8 ? * MON-FRI *)"}
_FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, str, str]] = {
    "zero of multi-model": ({}, {"min": 0, "max": 1}, "scaling.min", "zero-not-allowed"),
    "bounds crossed": ({}, {"min": 2, "max": 1}, "scaling.min", "bounds-crossed"),
    "bounds crossed at zero": (ZERO, {"min": 2, "max": 1}, "scaling.min", "bounds-crossed"),
    "max 0": (ZERO, {"min": 0, "max": 0}, "scaling.max", "value-not-allowed"),
    "max 0 of multi-model": ({}, {"min": 0, "max": 0}, "scaling.max", "value-not-allowed"),
    "no min for multi-model": ({}, {"max": 2}, "scaling.min", "field-missing"),
    "no copies at creation": (ZERO | {"copy_count": 0}, None, "endpoint.copy_count", "value-not-allowed"),
    "copies over max": (ZERO | {"copy_count": 2}, None, "endpoint.copy_count", "count-outside-bounds"),
    "copies of multi-model": ({"copy_count": 2}, None, "endpoint.copy_count", "setting-unused"),
    "instances of scale-to-zero": (
        ZERO | {"initial_instance_count": 1},
        None,
        "endpoint.initial_instance_count",
        "setting-unused",
    ),
    "model cache of scale-to-zero": (
        ZERO | {"model_cache_setting": "Disabled"},
        None,
        "endpoint.model_cache_setting",
        "setting-unused",
    ),
    "instances below min": ({}, {"min": 2, "max": 3}, "endpoint.initial_instance_count", "count-outside-bounds"),
    "idle time of multi-model": (
        {},
        {"min": 1, "max": 2, "idle_minutes": 5},
        "scaling.idle_minutes",
        "setting-unused",
    ),
    "idle time that tracking ends": (ZERO, {"max": 2, "idle_minutes": 16}, "scaling.idle_minutes", "setting-unused"),
    "target alone": (ZERO, {"target": 300}, "scaling.target", "setting-incomplete"),
    "metric alone": (ZERO, {"metric": "invocations"}, "scaling.metric", "setting-incomplete"),
    "target of the other metric": (
        ZERO,
        {"metric": "concurrency", "target": 3000},
        "scaling.target",
        "value-not-allowed",
    ),
    "unknown metric": (ZERO, {"metric": "cpu", "target": 3}, "scaling.metric", "value-not-allowed"),
    "name too long for a component": (ZERO | {"name": "n" * 57}, None, "endpoint.name", "name-too-long"),
    "schedule names twice": (
        ZERO,
        {"schedule": [_ENTRY | {"min": 1}, _ENTRY | {"min": 0}]},
        "scaling.schedule.1.name",
        "name-twice",
    ),
    "schedule without bounds": (ZERO, {"schedule": [_ENTRY]}, "scaling.schedule.0", "field-missing"),
    "schedule bounds crossed": (
        ZERO,
        {"max": 2, "schedule": [_ENTRY | {"min": 3}]},
        "scaling.schedule.0",
        "bounds-crossed",
    ),
    "schedule to zero of multi-model": (
        {},
        {"min": 1, "max": 2, "schedule": [_ENTRY | {"min": 0}]},
        "scaling.schedule.0.min",
        "zero-not-allowed",
    ),
    "schedule in no place": (
        ZERO,
        {"schedule": [_ENTRY | {"min": 1, "timezone": "Mars/Phobos"}]},
        "scaling.schedule.0.timezone",
        "value-not-allowed",
    ),
    "rate in a time zone": (
        ZERO,
        {"schedule": [{"name": "day", "cron": "rate(1 day)", "min": 1, "timezone": "Asia/Seoul"}]},
        "scaling.schedule.0.timezone",
        "setting-unused",
    ),
    "schedule in another syntax": (
        ZERO,
        {"schedule": [{"name": "day", "cron": "0 8 * * 1-5", "min": 1}]},
        "scaling.schedule.0.cron",
        "schedule-not-allowed",
    ),
}


@pytest.mark.parametrize("case", _FAULTS)
def test_settings_that_cannot_work_are_refused_where_they_stand(case: str, tmp_path: Path) -> None:
    """Settings that the service would refuse, or silently not apply, stop at synth, once."""
    endpoint, scaling, field, code = _FAULTS[case]

    faults = faults_of(tmp_path / "catalog.yaml", endpoint, scaling)

    assert [fault[1:] for fault in faults] == [(code, field)]


def test_faults_of_several_values_have_lines_of_their_own(tmp_path: Path) -> None:
    """The faults of several values are reported together, each at the line of its value."""
    faults = faults_of(tmp_path / "catalog.yaml", {"copy_count": 3}, {"min": 0, "max": 2, "idle_minutes": 5})

    assert faults == [
        (5, "setting-unused", "endpoint.copy_count"),
        (7, "zero-not-allowed", "scaling.min"),
        (9, "setting-unused", "scaling.idle_minutes"),
    ]
