"""Loads during a measurement, by the answers of SageMaker and by its metrics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from report_runs import START, calls, phase, record, target, ticks

from cohost.report.endpoint_metrics import EndpointMetrics, Metric, Point
from cohost.report.reloads import judged_again, reload_marks
from cohost.report.run import ColdCall, Mark, Run
from cohost.report.samples import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

COLD = tuple(ColdCall(model=name, first_s=3.0, second_s=0.1, refused=0) for name in "ab")


def run_of(**changes: Any) -> Run:
    """First calls of two models, a warm-up and ten seconds of measurement in one minute; 500 calls each."""
    phases = (phase(0, 1, kind="cold"), phase(1, 1, kind="warm-up"), phase(2, 1))
    samples = np.concatenate([calls(0, 1, 2.5), calls(1, 1, 0.02), calls(2, 1, 0.02)])
    return Run(record(*phases, **{"cold": COLD, **changes}), samples, ticks(30), Path())


def metrics(*hits: tuple[float, int, int], unloads: Sequence[float] = ()) -> EndpointMetrics:
    """Minutes of ModelCacheHit as start after the run's, calls and misses; unloads by their minute."""
    points = tuple(
        Point(at=START + at, average=1 - missed / count, maximum=1, count=count) for at, count, missed in hits
    )
    found = [Metric(name="ModelCacheHit", unit="share", points=points)]
    if unloads:
        gone = tuple(Point(at=START + at, average=1, maximum=1, count=1) for at in unloads)
        found.append(Metric(name="ModelUnloadingTime", unit="ms", points=gone))
    return EndpointMetrics(read_at=START, metrics=tuple(found))


def codes(run: Run, found: EndpointMetrics | None) -> list[tuple[str, bool]]:
    """Return the marks' codes, with True for those that make the run invalid."""
    return [(mark.code, mark.invalid) for mark in reload_marks(run, found)]


def test_first_loads_are_no_reloads() -> None:
    """A steady run of two models, with only the two misses of the first calls, has no mark."""
    assert codes(run_of(), metrics((0, 1004, 2))) == []


@pytest.mark.parametrize("missed", [3, 680])
def test_more_misses_than_first_loads_make_the_run_invalid(missed: int) -> None:
    """A miss beyond those of the first loads makes the run invalid."""
    assert codes(run_of(), metrics((0, 1004, missed))) == [("reloads", True)]


def test_refused_first_calls_miss_too() -> None:
    """A first call that SageMaker refused while the model was loaded counts each time."""
    cold = (COLD[0], COLD[1].model_copy(update={"refused": 3}))
    assert codes(run_of(cold=cold), metrics((0, 1004, 5))) == []
    assert codes(run_of(cold=cold), metrics((0, 1004, 6))) == [("reloads", True)]


def test_misses_of_other_callers_are_not_this_runs() -> None:
    """Calls before the run in its first minute load models of their own."""
    assert codes(run_of(), metrics((0, 1010, 8))) == []
    assert codes(run_of(), metrics((0, 1010, 9))) == [("reloads", True)]


def test_a_miss_within_the_measured_minutes_needs_no_excess() -> None:
    """Without first calls many misses are explained, but not those of a minute in which all calls were measured."""
    steps = (phase(0, 1, 8, kind="warm-up"), phase(1, 1, 8, ended=START + 200))
    samples = np.concatenate([calls(0, 1, 0.1), calls(13, 1, 0.1)])
    samples["phase"][100:] = 1
    run = Run(record(*steps), samples, ticks(200), Path())

    assert codes(run, metrics((0, 100, 10))) == []
    assert codes(run, metrics((0, 100, 10), (120, 100, 1))) == [("reloads", True)]


def test_several_instances_load_each_for_itself() -> None:
    """With two instances and one caller, up to four misses are first loads."""
    run = run_of(target=target(instance_count=2))
    assert codes(run, metrics((0, 1004, 4))) == []
    assert codes(run, metrics((0, 1004, 5))) == [("reloads", True)]


def test_an_unload_within_the_measurement_makes_the_run_invalid() -> None:
    """Unloads in a minute wholly within a measured step make the run invalid."""
    run = Run(record(phase(0, 1, ended=START + 200)), calls(0, 1, 0.02), ticks(200), Path())

    assert codes(run, metrics((0, 500, 0), unloads=[60])) == [("reloads", True)]
    assert codes(run, metrics((0, 500, 0), unloads=[-60, 180])) == []


def test_a_refusal_while_loading_makes_the_run_invalid_without_metrics() -> None:
    """A 429 ModelNotReadyException makes the run invalid in a measured step, but not in a warm-up."""
    run = run_of()
    run.samples["outcome"][10] = Outcome.NOT_READY
    assert codes(run, metrics((0, 1004, 2))) == []
    run.samples["outcome"][-1] = Outcome.NOT_READY
    (mark,) = reload_marks(run, None)
    assert (mark.code, mark.invalid) == ("reloads", True)
    assert "refused 1 calls" in mark.message


def test_without_the_metric_nothing_is_known() -> None:
    """A run whose metrics CloudWatch does not have yet is marked as not judged."""
    assert codes(run_of(), None) == [("reloads-unknown", False)]
    assert codes(run_of(), EndpointMetrics(read_at=START, metrics=())) == [("reloads-unknown", False)]


@pytest.mark.parametrize("changes", [{"kind": "container"}, {"inference_component_name": "c"}])
def test_targets_that_load_no_models_by_call_are_not_judged(changes: dict[str, Any]) -> None:
    """Runs against containers and inference components get no mark on reloads."""
    assert codes(run_of(target=target(**changes)), None) == []


def test_a_report_judges_again_with_the_metrics_of_then() -> None:
    """A later report replaces the marks on reloads, and keeps the other marks."""
    old = Mark(code="cut-short", message="m", invalid=False)
    unknown = Mark(code="reloads-unknown", message="m", invalid=False)
    run = run_of(marks=(unknown, old))

    assert judged_again(run, metrics((0, 1004, 2))).record.marks == (old,)
    again = judged_again(run, metrics((0, 1004, 90))).record
    assert ([mark.code for mark in again.marks], again.valid) == (["cut-short", "reloads"], False)
