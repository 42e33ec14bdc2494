"""The catalog's scaling: defaults of each topology, and what does not go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cohost.catalog.checks import check_catalog
from cohost.catalog.models import Catalog
from cohost.catalog_file import load_catalog
from cohost.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

ZERO: dict[str, Any] = {"topology": "scale-to-zero"}


def content(endpoint: dict[str, Any] | None = None, scaling: dict[str, Any] | None = None) -> dict[str, Any]:
    """A right catalog's data with additions to the endpoint and a scaling section."""
    base = {"name": "nli", "instance_type": "ml.g5.xlarge", "image": "djl-inference:0.36.0-lmi26.0.0-cu130"}
    data: dict[str, Any] = {"endpoint": base | (endpoint or {})}
    if scaling is not None:
        data["scaling"] = scaling
    return data | {"models": {"nli": {"model_id": "org/nli", "task": "text-classification"}}}


def faults_of(path: Path, endpoint: dict[str, Any], scaling: dict[str, Any] | None) -> list[str]:
    """The faults of a catalog file with these settings, without the file's name."""
    path.write_text(yaml.safe_dump(content(endpoint, scaling), sort_keys=False), encoding="utf-8")
    with pytest.raises(CatalogError) as caught:
        load_catalog(path)
    return [fault.removeprefix(f"{path}:") for fault in caught.value.faults]


def test_scale_to_zero_needs_no_scaling_section() -> None:
    """The topology's name says what it does: nothing while nobody calls, one copy when somebody does."""
    scaling = Catalog.model_validate(content(ZERO)).scaling

    assert scaling is not None
    assert (scaling.min, scaling.max, scaling.metric, scaling.target) == (0, 1, "concurrency", 4)
    assert (scaling.scale_in_cooldown, scaling.scale_out_cooldown, scaling.idle_minutes) == (300, 60, None)
    assert scaling.schedule == ()


def test_scale_to_zero_fills_in_the_bound_that_is_left_out() -> None:
    """Whoever states max alone still scales to zero."""
    scaling = Catalog.model_validate(content(ZERO, {"max": 3})).scaling

    assert scaling is not None
    assert (scaling.min, scaling.max) == (0, 3)


def test_multi_model_does_not_scale_unless_asked() -> None:
    """Without a scaling section the number of instances is the one that the catalog states."""
    assert Catalog.model_validate(content()).scaling is None


def test_catalog_made_in_memory_is_held_to_the_same_rules() -> None:
    """No path around the file leads to settings that the service refuses."""
    with pytest.raises(CatalogError, match=r"scaling\.min: min 0 with topology multi-model"):
        check_catalog(Catalog.model_validate(content(scaling={"min": 0, "max": 1})))


def test_bounds_count_the_schedule_in() -> None:
    """What instances must be there for is the widest that any entry of the schedule asks for."""
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
    """An idle time of an hour with one copy is an hour, not target tracking's quarter of one."""
    read = Catalog.model_validate(content(ZERO, scaling)).scaling

    assert read is not None
    assert read.tracking_scales_in is expected


_ENTRY = {"name": "day", "cron": "cron(0 8 ? * MON-FRI *)"}
_FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, str, str]] = {
    "zero of multi-model": ({}, {"min": 0, "max": 1}, "scaling.min", "fix: write topology: scale-to-zero"),
    "bounds crossed": ({}, {"min": 2, "max": 1}, "scaling.min", "min 2 is over max 1; allowed: min up to max; fix: "),
    "bounds crossed at zero": (ZERO, {"min": 2, "max": 1}, "scaling.min", "fix: raise max or lower min"),
    "max 0": (ZERO, {"min": 0, "max": 0}, "scaling.max", "fix: write max: 1 or more"),
    "max 0 of multi-model": ({}, {"min": 0, "max": 0}, "scaling.max", "min: 0 with topology: scale-to-zero"),
    "no min for multi-model": ({}, {"max": 2}, "scaling.min", "is missing; allowed: 0 to 1000; from 1 with topology"),
    "no copies at creation": (ZERO | {"copy_count": 0}, None, "endpoint.copy_count", "no component is created at 0"),
    "copies over max": (ZERO | {"copy_count": 2}, None, "endpoint.copy_count", "allowed: 1 to 1, within min and max"),
    "copies of multi-model": ({"copy_count": 2}, None, "endpoint.copy_count", "fix: write initial_instance_count"),
    "instances of scale-to-zero": (
        ZERO | {"initial_instance_count": 1},
        None,
        "endpoint.initial_instance_count",
        "would do nothing; allowed: with topology multi-model only; fix: write copy_count",
    ),
    "model cache of scale-to-zero": (
        ZERO | {"model_cache_setting": "Disabled"},
        None,
        "endpoint.model_cache_setting",
        "fix: take it out; the component holds all models",
    ),
    "instances below min": ({}, {"min": 2, "max": 3}, "endpoint.initial_instance_count", "allowed: 2 to 3"),
    "idle time of multi-model": (
        {},
        {"min": 1, "max": 2, "idle_minutes": 5},
        "scaling.idle_minutes",
        "allowed: with topology scale-to-zero only; fix: take it out",
    ),
    "idle time that tracking ends": (
        ZERO,
        {"max": 2, "idle_minutes": 11},
        "scaling.idle_minutes",
        "would do nothing, because target tracking goes down to min after 10 minutes",
    ),
    "target alone": (ZERO, {"target": 300}, "scaling.target", "target stands alone; allowed: metric and target"),
    "metric alone": (ZERO, {"metric": "invocations"}, "scaling.metric", "metric stands alone"),
    "target of the other metric": (
        ZERO,
        {"metric": "concurrency", "target": 3000},
        "scaling.target",
        "allowed: 0.1 to 1000 calls at a time",
    ),
    "unknown metric": (ZERO, {"metric": "cpu", "target": 3}, "scaling.metric", "allowed: invocations or concurrency"),
    "name too long for a component": (
        ZERO | {"name": "n" * 57},
        None,
        "endpoint.name",
        "has 57 characters; allowed: 56 with topology scale-to-zero, whose component is named NAME-models",
    ),
    "schedule names twice": (
        ZERO,
        {"schedule": [_ENTRY | {"min": 1}, _ENTRY | {"min": 0}]},
        "scaling.schedule.1.name",
        "'day' stands twice",
    ),
    "schedule without bounds": (ZERO, {"schedule": [_ENTRY]}, "scaling.schedule.0", "neither min nor max is stated"),
    "schedule bounds crossed": (
        ZERO,
        {"max": 2, "schedule": [_ENTRY | {"min": 3}]},
        "scaling.schedule.0",
        "'day' leaves min 3 over max 2",
    ),
    "schedule to zero of multi-model": (
        {},
        {"min": 1, "max": 2, "schedule": [_ENTRY | {"min": 0}]},
        "scaling.schedule.0.min",
        "fix: write topology: scale-to-zero under endpoint, or min: 1",
    ),
    "schedule in no place": (
        ZERO,
        {"schedule": [_ENTRY | {"min": 1, "timezone": "Mars/Phobos"}]},
        "scaling.schedule.0.timezone",
        "allowed: an IANA time zone such as Europe/Berlin",
    ),
    "rate in a time zone": (
        ZERO,
        {"schedule": [{"name": "day", "cron": "rate(1 day)", "min": 1, "timezone": "Asia/Seoul"}]},
        "scaling.schedule.0.timezone",
        "timezone with rate(1 day) would do nothing",
    ),
    "schedule in another syntax": (
        ZERO,
        {"schedule": [{"name": "day", "cron": "0 8 * * 1-5", "min": 1}]},
        "scaling.schedule.0.cron",
        "allowed: cron(minutes hours day month weekday year), rate(number unit) or at(",
    ),
}


@pytest.mark.parametrize("case", _FAULTS)
def test_settings_that_cannot_work_are_refused_with_the_way_out(case: str, tmp_path: Path) -> None:
    """What the service would refuse, or silently not do, stops at synth with place and fix."""
    endpoint, scaling, place, text = _FAULTS[case]

    faults = faults_of(tmp_path / "catalog.yaml", endpoint, scaling)

    assert len(faults) == 1, faults
    line, found, message = faults[0].split(": ", 2)
    assert (found, line.isdecimal()) == (place, True)
    assert text in message


def test_faults_of_several_values_have_lines_of_their_own(tmp_path: Path) -> None:
    """All faults come together, each at the line of the value to change."""
    faults = faults_of(tmp_path / "catalog.yaml", {"copy_count": 3}, {"min": 0, "max": 2, "idle_minutes": 5})

    assert [fault.split(": ")[:2] for fault in faults] == [
        ["5", "endpoint.copy_count"],
        ["7", "scaling.min"],
        ["9", "scaling.idle_minutes"],
    ]
