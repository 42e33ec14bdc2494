"""Counters of one model: responses, batches, and the waiting and answer times of requests.

Metrics that DJL Serving has keep its units and bounds (DJL Serving 0.36.0: BatchAggregator, InferenceRequestHandler):
"QueueTime" and "RequestLatency" are histograms in microseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


_MICROSECONDS = 1_000_000
# The default bounds of Prometheus's Java client, 5 ms to 10 s, in microseconds, and shorter times below them.
_TIMES = (100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000)
_LONG_TIMES = (5_000_000, 10_000_000)
# The group, 2XX, 4XX or 5XX, in which a status of each hundred counts; a handler may return any status.
_GROUPS = {1: 2, 2: 2, 3: 2, 4: 4}
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Histogram:
    """A Prometheus histogram: the number of values at or below each bound, and the values' sum."""

    def __init__(self, bounds: Sequence[int]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Add a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def samples(self) -> Iterator[tuple[str, str | None, float]]:
        """Yield (suffix of the name, bound, value) in Prometheus's form: cumulative buckets, the last bound +Inf."""
        below = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            below += count
            yield "_bucket", bound, below
        yield "_sum", None, self._sum
        yield "_count", None, below


class ModelMetrics:
    """Counters of one model since it was loaded."""

    def __init__(self) -> None:
        self.responses = {2: 0, 4: 0, 5: 0}
        self.batches = 0
        self.histograms = {
            "QueueTime": Histogram((*_TIMES, *_LONG_TIMES)),
            "RequestLatency": Histogram((*_TIMES, *_LONG_TIMES)),
            "cohost_batch_size": Histogram(_SIZES),
        }

    def batch(self, waited_s: Iterable[float]) -> None:
        """Record a batch that goes to a worker; `waited_s` has the seconds that each of its requests waited."""
        size = 0
        for seconds in waited_s:
            self.histograms["QueueTime"].observe(seconds * _MICROSECONDS)
            size += 1
        self.histograms["cohost_batch_size"].observe(size)
        self.batches += 1

    def answered(self, seconds: float) -> None:
        """Record an answered request; `seconds` is the time from its arrival to its answer."""
        self.histograms["RequestLatency"].observe(seconds * _MICROSECONDS)

    def response(self, status: int) -> None:
        """Record the status of an answer under 2XX, 4XX or 5XX: 1XX and 3XX count as 2XX, 600 and above as 5XX."""
        self.responses[_GROUPS.get(status // 100, 5)] += 1
