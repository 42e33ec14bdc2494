"""The values of metrics over time, from which any statistic of any period can be computed.

CloudWatch keeps values of high resolution for 3 hours and values per minute for 15 days (user guide: "Metrics
retention"). The emulated CloudWatch keeps values per minute for 7 days, which is as far as an alarm can look back. The
shortest period of an alarm is 10 s, so all values of high resolution in 10 s share one statistic set.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from local_aws.kit.clock import Clock

    Dimensions = tuple[tuple[str, str], ...]

FINE: Final = 10
COARSE: Final = 60
_FINE_KEPT: Final = 3 * 3600
_KEPT: Final = 7 * 86400
# Values are counted with three significant digits: exact to 0.5 %, with few different values per minute.
_DIGITS: Final = 3


@dataclass(frozen=True)
class Metric:
    """The identity of a metric: its namespace, its name, and its dimensions sorted by name."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, namespace: str, name: str, dimensions: Iterable[tuple[str, str]]) -> Metric:
        """Return the metric with the given dimensions, which may be in any order."""
        return cls(namespace, name, tuple(sorted(dimensions)))


@dataclass(slots=True)
class StatisticSet:
    """The statistics of one metric in one interval.

    `values` has the number of samples for each value, without samples that a caller put only as a statistic set.
    """

    count: float = 0.0
    total: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf
    values: defaultdict[float, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, value: float, times: float = 1.0) -> None:
        """Add a value that occurred `times` times."""
        self._include(times, value * times, value, value)
        self.values[float(f"{value:.{_DIGITS}g}")] += times

    def add_set(self, *, count: float, total: float, minimum: float, maximum: float) -> None:
        """Add a statistic set that a caller put; if all its samples are equal, add them to `values` too."""
        self._include(count, total, minimum, maximum)
        if minimum == maximum:
            self.values[minimum] += count

    def merge(self, other: StatisticSet) -> None:
        """Add the statistics of another interval."""
        self._include(other.count, other.total, other.minimum, other.maximum)
        for value, times in other.values.items():
            self.values[value] += times

    def statistic(self, name: str) -> float | None:
        """Return a statistic by CloudWatch's name, such as Average or p99; None if it cannot be computed."""
        if name.startswith("p"):
            return self._percentile(float(name[1:]))
        known = {
            "SampleCount": self.count,
            "Sum": self.total,
            "Minimum": self.minimum,
            "Maximum": self.maximum,
            "Average": self.total / self.count if self.count else None,
        }
        return known[name]

    def _include(self, count: float, total: float, minimum: float, maximum: float) -> None:
        self.count += count
        self.total += total
        self.minimum = min(self.minimum, minimum)
        self.maximum = max(self.maximum, maximum)

    def _percentile(self, percent: float) -> float | None:
        """Return the smallest value that `percent` % of the samples do not exceed; None if any value is unknown."""
        known = sum(self.values.values())
        if not known or known < self.count:
            return None
        reached = 0.0
        for value in sorted(self.values):
            reached += self.values[value]
            if reached >= known * percent / 100:
                return value
        return self.maximum


class MetricSeries:
    """One metric's statistics in one unit, per minute; for high-resolution values of the last 3 hours, per 10 s."""

    def __init__(self) -> None:
        self._fine: dict[int, StatisticSet] = {}
        self._coarse: dict[int, StatisticSet] = {}

    def at(self, time: float, *, fine: bool) -> StatisticSet:
        """Return the statistics of the interval that contains a time in seconds; callers add values to them."""
        width, intervals = (FINE, self._fine) if fine else (COARSE, self._coarse)
        start = int(time // width) * width
        if (found := intervals.get(start)) is None:
            found = intervals[start] = StatisticSet()
            self._age(start)
        return found

    def within(self, start: float, end: float) -> Iterator[StatisticSet]:
        """Yield the statistics of the intervals that begin at or after `start` and before `end`, both in seconds."""
        for intervals, width in ((self._fine, FINE), (self._coarse, COARSE)):
            for begin in range(math.ceil(start / width) * width, math.ceil(end), width):
                if (found := intervals.get(begin)) is not None:
                    yield found

    def _age(self, now: int) -> None:
        """Merge 10 s intervals older than 3 hours into minutes, and delete minutes older than 7 days."""
        for start in _older(self._fine, now - _FINE_KEPT):
            minute = start // COARSE * COARSE
            self._coarse.setdefault(minute, StatisticSet()).merge(self._fine.pop(start))
        for start in _older(self._coarse, now - _KEPT):
            del self._coarse[start]


class MetricStore:
    """The values of all metrics, by the time of the emulator's clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._series: dict[Metric, dict[str, MetricSeries]] = {}
        self._named: dict[tuple[str, str, Dimensions], Metric] = {}

    def record(self, key: tuple[str, str, Dimensions], unit: str, value: float, *, fine: bool) -> None:
        """Record a value of the present time; `key` is namespace, name and dimensions, `fine` means high resolution."""
        if (metric := self._named.get(key)) is None:
            metric = self._named[key] = Metric.of(*key)
        self.at(metric, unit, self._clock.now(), fine=fine).add(value)

    def at(self, metric: Metric, unit: str, time: float, *, fine: bool) -> StatisticSet:
        """Return a metric's statistics at a time of the clock in seconds; callers add values to them."""
        series = self._series.setdefault(metric, {}).setdefault(unit, MetricSeries())
        return series.at(time, fine=fine)

    def between(self, metric: Metric, unit: str | None, start: float, end: float) -> StatisticSet | None:
        """Merge a metric's values from `start` to before `end`, of one unit or of all (None); None without values."""
        by_unit: Mapping[str, MetricSeries] = self._series.get(metric, {})
        found = [
            statistics
            for name, series in by_unit.items()
            if unit in {None, name}
            for statistics in series.within(start, end)
        ]
        if not found:
            return None
        whole = StatisticSet()
        for statistics in found:
            whole.merge(statistics)
        return whole


def _older(intervals: Mapping[int, StatisticSet], limit: int) -> list[int]:
    """Return the interval starts before a limit; starts are nearly sorted, so the first later one ends the search."""
    old = []
    for start in intervals:
        if start >= limit:
            break
        old.append(start)
    return old
