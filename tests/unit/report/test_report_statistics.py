"""Percentiles and their intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cohost.report.samples import distribution, percentile, percentile_interval, rate_interval

LATENCIES = st.lists(st.floats(1e-4, 100), min_size=1, max_size=300)


@given(LATENCIES)
def test_percentiles_are_numpys_and_in_order(values: list[float]) -> None:
    """The percentiles of any latencies equal numpy's, between the smallest and the largest."""
    seconds = np.array(values)

    found = distribution(seconds)

    assert found is not None
    ordered = [found.least, found.p50, found.p90, found.p95, found.p99, found.most]
    assert ordered == pytest.approx(sorted(ordered))
    for q, value in ((0, found.least), (50, found.p50), (90, found.p90), (95, found.p95), (99, found.p99)):
        assert value == pytest.approx(np.percentile(seconds * 1000, q))
        assert percentile(seconds, q) == np.percentile(seconds, q)
    assert found.count == len(values)
    assert found.p50_interval.low <= found.p50_interval.high


def test_nothing_has_no_distribution() -> None:
    """Percentiles without an answered call are missing, and not 0."""
    assert distribution(np.array([])) is None


@pytest.mark.parametrize(("count", "rough"), [(499, True), (500, False)])
def test_a_p99_of_too_few_is_marked(count: int, rough: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Fewer than five slower calls carry no p99."""
    found = distribution(np.linspace(0.01, 0.02, count))

    assert found is not None
    assert found.p99_is_rough is rough


def test_intervals_hold_the_true_value_about_as_often_as_they_say() -> None:
    """At least nine in ten of 200 confidence intervals contain the true median."""
    rng = np.random.default_rng(7)
    hits = {50: 0, 99: 0}
    for _ in range(200):
        values = np.sort(rng.exponential(size=1000))
        for q in hits:
            interval = percentile_interval(values, q)
            hits[q] += interval.low <= -np.log(1 - q / 100) <= interval.high
    assert 180 <= hits[50] <= 199
    assert 170 <= hits[99] <= 199


def test_the_short_cut_equals_the_plain_bootstrap() -> None:
    """Drawing order statistics gives the interval that resampling all values gives."""
    rng = np.random.default_rng(3)
    values = np.sort(rng.lognormal(size=400))
    plain = np.percentile([np.sort(rng.choice(values, 400))[199] for _ in range(2000)], [2.5, 97.5])

    interval = percentile_interval(values, 50)

    assert [interval.low, interval.high] == pytest.approx(plain, rel=0.03)


def test_rate_interval_surrounds_the_rate() -> None:
    """40 items a second, unevenly, give an interval around 40; two seconds give none."""
    rng = np.random.default_rng(1)
    at = np.sort(rng.uniform(0, 30, 1200))

    interval = rate_interval(at, np.ones(1200), 0, 30)

    assert interval is not None
    assert 36 < interval.low < 40 < interval.high < 44
    assert rate_interval(at, np.ones(1200), 0, 2.5) is None
