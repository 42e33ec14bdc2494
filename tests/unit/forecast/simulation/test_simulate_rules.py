"""Scaling settings of a replay: those of the catalog, replaced by options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from fakes.refusals import refused
from simulation_cases import START, trace

from cohost.catalog.sections.scaling import ScheduledScaling
from cohost.catalog_file import load_catalog
from cohost.errors import SimulationError
from cohost.forecast.pricing.running_hours import Service
from cohost.forecast.simulation.compare import Callers, replay_all
from cohost.forecast.simulation.rules import due, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cohost.catalog.models import Catalog

ENCODERS = Path(__file__).parents[4] / "model_configs" / "encoders.yaml"


@pytest.fixture(name="catalog")
def _catalog(tmp_path: Path) -> Callable[..., Catalog]:
    """Makes the shipped catalog with other endpoint keys and scaling."""

    def make(endpoint: dict[str, Any] | None = None, scaling: dict[str, Any] | None = None) -> Catalog:
        data = yaml.safe_load(ENCODERS.read_text(encoding="utf-8"))
        del data["endpoint"]["initial_instance_count"]
        data["endpoint"] |= endpoint or {}
        if scaling is not None:
            data["scaling"] = scaling
        file = tmp_path / "catalog.yaml"
        file.write_text(yaml.safe_dump(data), encoding="utf-8")
        return load_catalog(file).catalog

    return make


def test_a_catalog_that_does_not_scale_keeps_its_instances_or_goes_to_zero(catalog: Callable[..., Catalog]) -> None:
    """A catalog of two instances without `scaling` is replayed with always two, and with zero to two copies."""
    [(chosen, (multi, zero))] = rules_of(catalog({"initial_instance_count": 2}), {})
    assert chosen == {}
    assert (multi.topology, multi.min, multi.max, multi.start) == ("multi-model", 2, 2, 2)
    assert (zero.topology, zero.min, zero.max, zero.start) == ("scale-to-zero", 0, 2, 2)


def test_the_catalogs_scaling_is_taken_over(catalog: Callable[..., Catalog]) -> None:
    """The rules take each scaling key that a topology reads; multi-model has no idle time and no minimum of 0."""
    scaling = {"min": 0, "max": 1, "metric": "invocations", "target": 90, "scale_in_cooldown": 7}
    scaling |= {"scale_out_cooldown": 8, "idle_minutes": 40}
    [(_, (multi, zero))] = rules_of(catalog({"topology": "scale-to-zero"}, scaling), {})
    for rules in (multi, zero):
        assert (rules.metric, rules.target, rules.scale_in_cooldown, rules.scale_out_cooldown) == (
            "invocations",
            90,
            7,
            8,
        )
    assert (multi.min, multi.idle_minutes, multi.tracking_scales_in) == (1, None, True)
    assert (zero.min, zero.idle_minutes, zero.tracking_scales_in) == (0, 40, False)


@pytest.mark.parametrize("scaling", [None, {"min": 1, "max": 3}])
def test_each_topology_tracks_its_own_default(catalog: Callable[..., Catalog], scaling: dict[str, Any] | None) -> None:
    """Each topology has its own default metric and target; a given target applies to the topology of the catalog."""
    [(_, (multi, zero))] = rules_of(catalog(scaling=scaling), {})
    assert (multi.metric, multi.target, zero.metric, zero.target) == ("invocations", 1000, "concurrency", 4)
    [(_, (multi, zero))] = rules_of(catalog(scaling=scaling), {"target": [300.0]})
    assert (multi.metric, multi.target, zero.metric, zero.target) == ("invocations", 300, "invocations", 300)


def test_several_values_are_every_combination(catalog: Callable[..., Catalog]) -> None:
    """Several values of several settings give every combination, in the given order."""
    found = rules_of(catalog(), {"max": [1, 2], "idle_minutes": [None, 5]})
    assert [(c["max"], c["idle_minutes"]) for c, _ in found] == [(1, None), (1, 5), (2, None), (2, 5)]
    assert [zero.idle_minutes for _, (_, zero) in found] == [None, 5, None, 5]


def test_what_a_topology_does_not_read_is_not_replayed_again(catalog: Callable[..., Catalog]) -> None:
    """Several idle times are replayed for scale-to-zero, and only once for multi-model."""
    combinations = rules_of(catalog(), {"idle_minutes": [None, 5, 9]})
    day = trace([0] * 60)
    found = list(replay_all(day, combinations, Service(), callers=Callers.BOTH))
    assert [one.rules.topology for _, one in found].count("multi-model") == 1
    assert [one.patient for _, one in found if one.rules.topology == "scale-to-zero"] == [False, True] * 3


@pytest.mark.parametrize(
    ("overrides", "code", "field"),
    [
        ({"min": [2], "max": [1]}, "scaling-invalid", "scaling.min"),
        ({"max": [0]}, "scaling-invalid", "scaling.max"),
        ({"min": [-1]}, "scaling-invalid", "scaling.min"),
        ({"idle_minutes": [0]}, "scaling-invalid", "scaling.idle_minutes"),
        ({"idle_minutes": [60], "max": [2]}, "scaling-invalid", "scaling.idle_minutes"),
        ({"metric": ["calls"], "target": [1.0]}, "scaling-invalid", "scaling.metric"),
        ({"metric": ["concurrency"]}, "target-missing", "--metric"),
        ({"target": [0.0]}, "scaling-invalid", "scaling.target"),
        ({"scale_in_cooldown": [-5]}, "scaling-invalid", "scaling.scale_in_cooldown"),
        ({"max": list(range(1, 502))}, "sweep-large", "settings"),
    ],
)
def test_settings_that_the_service_would_refuse_are_refused(
    catalog: Callable[..., Catalog], overrides: dict[str, list[Any]], code: str, field: str
) -> None:
    """Settings are rejected by the catalog's rules, with the name of the key."""
    with refused(code, field, kind=SimulationError) as caught:
        rules_of(catalog(), overrides)
    assert "fix: " in str(caught.value)


def test_copies_take_one_gpu_each(catalog: Callable[..., Catalog]) -> None:
    """Four copies fit on one ml.g5.12xlarge; a multi-model endpoint counts instances."""
    [(_, (multi, zero))] = rules_of(catalog({"instance_type": "ml.g5.12xlarge"}), {})
    assert (multi.per_instance, zero.per_instance) == (1, 4)


def test_a_schedule_is_due_in_its_own_time_zone() -> None:
    """8 o'clock in Seoul is 23 o'clock of the day before in UTC, from Monday to Friday."""
    entry = ScheduledScaling(name="morning", cron="cron(0 8 ? * MON-FRI *)", timezone="Asia/Seoul", min=1)
    week = trace([0] * 7 * 24 * 60)
    assert week.start == START
    assert list(due(entry, week)) == [(23 + 24 * day) * 3600 for day in (0, 1, 2, 3, 6)]


def test_a_schedule_is_replayed_for_both_topologies(catalog: Callable[..., Catalog]) -> None:
    """A copy that is scheduled from 8 to 18 costs ten hours and its tails; a multi-model endpoint always has one."""
    schedule = [
        {"name": "up", "cron": "cron(0 8 * * ? *)", "min": 1},
        {"name": "down", "cron": "cron(0 18 * * ? *)", "min": 0},
    ]
    combinations = rules_of(catalog({"topology": "scale-to-zero"}, {"schedule": schedule}), {})
    day = trace([0] * 24 * 60)
    (_, multi), (_, zero) = replay_all(day, combinations, Service(), callers=Callers.FAIL)
    assert multi.instance_hours == 24
    assert zero.instance_hours == pytest.approx(27 / 60 + 10 + 12 / 60 + 1 / 60, abs=0.02)


@pytest.mark.parametrize(
    ("field", "value"), [("wake_s", 59), ("requests_per_second", 0), ("service_s", -1), ("start_s", -1)]
)
def test_figures_that_no_service_has_are_refused(field: str, value: float) -> None:
    """An impossible time or rate is rejected with its option and the allowed values."""
    with refused("figure-range", field, kind=SimulationError):
        Service(**{field: value})


def test_other_starts_take_the_waking_time_less_the_alarm() -> None:
    """Other starts take 504 of the 564 seconds of a wake-up, unless a time is given."""
    assert Service().growth_s == 504
    assert Service(start_s=0).growth_s == 0
