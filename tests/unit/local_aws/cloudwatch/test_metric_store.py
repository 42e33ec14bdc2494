"""Metrics over time."""

from __future__ import annotations

import pytest

from local_aws.cloudwatch.metric_store import Metric, MetricStore, StatisticSet
from local_aws.kit.clock import Clock

KEY = ("N", "m", (("b", "2"), ("a", "1")))
METRIC = Metric.of("N", "m", [("a", "1"), ("b", "2")])


class Machine:
    """A time source that a test moves, with a metric store on it."""

    def __init__(self) -> None:
        self.time = 6000.0
        self.metrics = MetricStore(Clock(machine=lambda: self.time))

    def record(self, value: float, *, fine: bool = True, unit: str = "Count") -> None:
        """A value now."""
        self.metrics.record(KEY, unit, value, fine=fine)

    def total(self, start: float, end: float, unit: str | None = None) -> float | None:
        """The sum over a span."""
        found = self.metrics.between(METRIC, unit, start, end)
        return None if found is None else found.total


def test_values_are_found_by_time_and_unit_in_any_order_of_dimensions() -> None:
    """Values are found by unit and by a span that includes its start and excludes its end."""
    machine = Machine()
    for time, value in ((6000, 1), (6009, 2), (6010, 4), (6020, 8)):
        machine.time = time
        machine.record(value)
    machine.record(16, unit="None")
    assert machine.total(6000, 6020, "Count") == 7
    assert machine.total(6010, 6030) == 28
    assert machine.total(6010, 6030, "Count") == 12
    assert machine.total(6100, 6200) is None
    assert machine.metrics.between(Metric.of("N", "other", []), None, 0, 9e9) is None


def test_a_metric_of_standard_resolution_has_a_value_a_minute() -> None:
    """A standard metric has its values at the start of the minute, where an alarm of ten seconds sees them."""
    machine = Machine()
    machine.time = 6045
    machine.record(1, fine=False)
    assert machine.total(6000, 6010) == 1
    assert machine.total(6040, 6050) is None


def test_old_values_become_minutes_and_then_go() -> None:
    """Values per 10 s become values per minute after three hours, and are deleted after a week."""
    machine = Machine()
    for time in (6010, 6050):
        machine.time = time
        machine.record(1)
    machine.time = 6000 + 4 * 3600
    machine.record(1)
    assert machine.total(6000, 6010) == 2
    assert machine.total(6000, 7000) == 2
    machine.time = 6000 + 8 * 86400
    machine.record(1, fine=False)
    assert machine.total(0, 7000) is None


def test_statistics() -> None:
    """The store computes the five statistics, and percentiles of single values."""
    statistics = StatisticSet()
    for value in range(1, 101):
        statistics.add(value)
    names = ("SampleCount", "Sum", "Minimum", "Maximum", "Average", "p50", "p99", "p99.5", "p100", "p0")
    assert [statistics.statistic(name) for name in names] == [100, 5050, 1, 100, 50.5, 50, 99, 100, 100, 1]


def test_percentiles_hold_to_half_a_hundredth() -> None:
    """Percentiles are exact to 0.5 %, because values are stored with three digits."""
    statistics = StatisticSet()
    for value in range(100_000, 200_000, 7):
        statistics.add(value)
    assert statistics.statistic("p50") == pytest.approx(150_000, rel=0.005)
    assert len(statistics.values) <= 101


def test_a_statistic_set_has_no_percentiles_unless_all_its_values_are_equal() -> None:
    """A statistic set has percentiles only if all its values are equal, as in CloudWatch."""
    mixed, equal = StatisticSet(), StatisticSet()
    mixed.add_set(count=2, total=3, minimum=1, maximum=2)
    equal.add_set(count=2, total=4, minimum=2, maximum=2)
    assert (mixed.statistic("Average"), mixed.statistic("p50")) == (1.5, None)
    assert equal.statistic("p50") == 2
    mixed.merge(equal)
    assert (mixed.count, mixed.statistic("p50"), StatisticSet().statistic("Average")) == (4, None, None)
