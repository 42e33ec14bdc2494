"""Metrics over the time of a clock, with their values, so that any statistic of any period can be told.

CloudWatch keeps values of high resolution for 3 hours and those of a minute for 15 days (user guide: "Metrics
retention"); here both are shorter-lived than what an alarm can look back on, which is 7 days. 10 s is the shortest
period of an alarm, so nothing is kept apart that lies closer together.
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
# Three digits tell values half a hundredth apart, and keep the values of a minute few.
_DIGITS: Final = 3


@dataclass(frozen=True)
class Metric:
    """The identity of a metric: its namespace, its name, and its dimensions in order of their names."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, namespace: str, name: str, dimensions: Iterable[tuple[str, str]]) -> Metric:
        """Return the metric with these dimensions, in whatever order they are given."""
        return cls(namespace, name, tuple(sorted(dimensions)))


@dataclass(slots=True)
class Sample:
    """Values of one stretch of time; `values` counts them by value, and lacks those told as a statistic set only."""

    count: float = 0.0
    total: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    values: defaultdict[float, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, value: float, times: float = 1.0) -> None:
        """Take in a value that came up so many times."""
        self._include(times, value * times, value, value)
        self.values[float(f"{value:.{_DIGITS}g}")] += times

    def add_set(self, *, count: float, total: float, least: float, most: float) -> None:
        """Take in a statistic set; its single values are known where they are all equal."""
        self._include(count, total, least, most)
        if least == most:
            self.values[least] += count

    def merge(self, other: Sample) -> None:
        """Take in another stretch's values."""
        self._include(other.count, other.total, other.least, other.most)
        for value, times in other.values.items():
            self.values[value] += times

    def statistic(self, name: str) -> float | None:
        """Return a statistic by CloudWatch's name, such as Average or p99; None where it cannot be told."""
        if name.startswith("p"):
            return self._percentile(float(name[1:]))
        known = {
            "SampleCount": self.count,
            "Sum": self.total,
            "Minimum": self.least,
            "Maximum": self.most,
            "Average": self.total / self.count if self.count else None,
        }
        return known[name]

    def _include(self, count: float, total: float, least: float, most: float) -> None:
        self.count += count
        self.total += total
        self.least = min(self.least, least)
        self.most = max(self.most, most)

    def _percentile(self, percent: float) -> float | None:
        """Return the least value that `percent` of the values do not exceed; None unless all values are known."""
        known = sum(self.values.values())
        if not known or known < self.count:
            return None
        reached = 0.0
        for value in sorted(self.values):
            reached += self.values[value]
            if reached >= known * percent / 100:
                return value
        return self.most


class Series:
    """One metric's values: by stretches of 10 s where they are of high resolution and young, else by the minute."""

    def __init__(self) -> None:
        self._fine: dict[int, Sample] = {}
        self._coarse: dict[int, Sample] = {}

    def sample(self, time: float, *, fine: bool) -> Sample:
        """Return the stretch that a time belongs to, to add to it."""
        width, stretches = (FINE, self._fine) if fine else (COARSE, self._coarse)
        start = int(time // width) * width
        if (found := stretches.get(start)) is None:
            found = stretches[start] = Sample()
            self._age(start)
        return found

    def within(self, start: float, end: float) -> Iterator[Sample]:
        """Return the stretches that begin in a span of time."""
        for stretches, width in ((self._fine, FINE), (self._coarse, COARSE)):
            for begin in range(math.ceil(start / width) * width, math.ceil(end), width):
                if (found := stretches.get(begin)) is not None:
                    yield found

    def _age(self, now: int) -> None:
        """Merge what is old into minutes, and drop what is too old."""
        for start in _older(self._fine, now - _FINE_KEPT):
            minute = start // COARSE * COARSE
            self._coarse.setdefault(minute, Sample()).merge(self._fine.pop(start))
        for start in _older(self._coarse, now - _KEPT):
            del self._coarse[start]


class History:
    """All metrics, by the time of a clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._series: dict[Metric, dict[str, Series]] = {}
        self._named: dict[tuple[str, str, Dimensions], Metric] = {}

    def record(self, key: tuple[str, str, Dimensions], unit: str, value: float, *, fine: bool) -> None:
        """Record a value that was measured now: namespace, name and dimensions; `fine` for one of high resolution."""
        if (metric := self._named.get(key)) is None:
            metric = self._named[key] = Metric.of(*key)
        self.sample(metric, unit, self._clock.now(), fine=fine).add(value)

    def sample(self, metric: Metric, unit: str, time: float, *, fine: bool) -> Sample:
        """Return the stretch of a metric at a time of the clock's, to add to it."""
        series = self._series.setdefault(metric, {}).setdefault(unit, Series())
        return series.sample(time, fine=fine)

    def between(self, metric: Metric, unit: str | None, start: float, end: float) -> Sample | None:
        """Merge the values from `start` until before `end`, in one unit or (None) in any; None without a value."""
        by_unit: Mapping[str, Series] = self._series.get(metric, {})
        found = [
            sample for name, series in by_unit.items() if unit in {None, name} for sample in series.within(start, end)
        ]
        if not found:
            return None
        whole = Sample()
        for sample in found:
            whole.merge(sample)
        return whole


def _older(stretches: Mapping[int, Sample], limit: int) -> list[int]:
    """Return the starts before a limit; they mostly stand in order, so the search ends at the first that is not."""
    old = []
    for start in stretches:
        if start >= limit:
            break
        old.append(start)
    return old
