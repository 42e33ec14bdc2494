"""The numbers of a load test, computed from its samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from report_runs import START, calls, phase, record, table_run, target, ticks

from cohost.report.formats import usd_per_million
from cohost.report.run import Run
from cohost.report.samples import Outcome
from cohost.report.summary import instance_of, summarise

if TYPE_CHECKING:
    from pathlib import Path


def test_the_table_is_that_of_the_earlier_measurement(tmp_path: Path) -> None:
    """20 and 104 items/s on an instance of 1.408 USD an hour: efficiency 5.2, 3.76 USD a million."""
    headline = summarise(table_run(tmp_path)).headlines[0]

    assert headline.latency_ms is not None
    assert headline.latency_ms.p50 == pytest.approx(50, rel=1e-3)
    assert headline.items_per_s_at_8 == pytest.approx(104, rel=0.01)
    assert headline.batch_efficiency == pytest.approx(5.2, rel=0.01)
    assert headline.usd_per_million == pytest.approx(3.76, abs=0.04)
    assert headline.instance == "ml.g5.xlarge"


def test_models_of_a_mix_have_rates_of_their_own(tmp_path: Path) -> None:
    """A model that gets half of the calls is not half as fast."""
    summary = summarise(table_run(tmp_path))

    assert [headline.model for headline in summary.headlines] == ["all models", "a", "b"]
    assert summary.headlines[1].items_per_s_at_8 == pytest.approx(104, rel=0.01)
    assert summary.steps[1].models[0].items_per_s == pytest.approx(52, rel=0.02)


def test_no_batch_of_eight_has_no_cost(tmp_path: Path) -> None:
    """A load test without a step of eight texts per call has no cost per million."""
    run = Run(record(phase(0, 4)), calls(0, 4, 0.1), ticks(10), tmp_path)

    headline = summarise(run).headlines[0]

    assert headline.items_per_s_at_8 is None
    assert headline.batch_efficiency is None
    assert headline.usd_per_million is None


def test_latency_of_an_open_load_counts_from_the_planned_moment(tmp_path: Path) -> None:
    """In an open load the latency of a late call counts from its planned time."""
    rows = calls(0, 1, 0.1)
    rows["planned"] -= 0.4
    run = Run(record(phase(0, 1, rate=10.0)), rows, ticks(10), tmp_path)

    line = summarise(run).steps[0].total

    assert line.latency_ms is not None
    assert line.latency_ms.p50 == pytest.approx(500, rel=1e-3)
    assert line.items_per_s_alone is None


def test_failures_by_kind_and_status(tmp_path: Path) -> None:
    """Model errors are counted by status, and have no latency."""
    rows = calls(0, 1, 0.1)
    rows["outcome"][:6] = [Outcome.MODEL_ERROR] * 3 + [Outcome.TIMED_OUT, Outcome.UNSENT, Outcome.UNFINISHED]
    rows["status"][:3] = [503, 503, 400]
    run = Run(record(phase(0, 1)), rows, ticks(10), tmp_path)

    line = summarise(run).steps[0].total

    assert line.failures == {"model error (400)": 1, "model error (503)": 2, "timed out": 1}
    assert (line.calls, line.answered, line.failed, line.cut_off) == (100, 94, 4, 2)
    assert line.latency_ms is not None
    assert line.latency_ms.count == 94


def test_answers_to_dropped_calls_count_for_the_rate_alone(tmp_path: Path) -> None:
    """Calls of the warm-up that end later count for the rate, and not for latencies."""
    warm, step = phase(0, 1, kind="warm-up"), phase(1, 1)
    slow = calls(0, 1, 1.0)
    slow["done"] += 0.5
    run = Run(record(warm, step), np.concatenate([slow, calls(1, 1, 1.0)]), ticks(20), tmp_path)

    line = summarise(run).steps[0].total

    assert line.calls == 10
    assert line.calls_per_s == pytest.approx(1.1)


def test_a_step_without_an_answer_has_no_numbers(tmp_path: Path) -> None:
    """A step without an answer has no latency, rate or cost."""
    run = Run(record(phase(0, 1)), calls(0, 1, 0.1, outcome=Outcome.CONNECTION), ticks(0), tmp_path)

    summary = summarise(run)

    assert summary.steps[0].total.latency_ms is None
    assert summary.steps[0].generator_cpu is None
    assert summary.headlines[0].usd_per_million is None


def test_a_run_that_measured_nothing_has_no_headline(tmp_path: Path) -> None:
    """A load test that ended in its warm-up has no headline numbers."""
    run = Run(record(phase(0, 1, kind="warm-up")), calls(0, 1, 0.1), ticks(0), tmp_path)

    assert summarise(run).headlines == ()


def test_cost_needs_price_and_rate() -> None:
    """An unknown price is unknown, never 0."""
    assert usd_per_million(1.408, 104) == pytest.approx(3.7607, abs=1e-4)
    assert usd_per_million(None, 104) is None
    assert usd_per_million(1.408, 0) is None
    assert usd_per_million(1.408, None) is None


def test_instances_are_named_with_their_number() -> None:
    """Instances are printed with their number: one, several, unknown or none."""
    step = phase(0, 1)

    assert instance_of(record(step, target=target(instance_count=3))) == "3 x ml.g5.xlarge"
    assert instance_of(record(step, target=target(instance_type=None))) == "unknown"
    assert instance_of(record(step, target=target(emulated=True))) == "emulation on this machine"
    assert instance_of(record(step, target=target(kind="container"))) == "container"
    assert record(step).phases[0].started == START
