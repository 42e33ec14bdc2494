"""Percentiles and rates with their uncertainty, from raw samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESAMPLES = 2000
CONFIDENCE = 0.95
BEYOND = 5
"""A percentile is only as good as the samples beyond it; with fewer than this many it is marked."""

SECONDS_A_BIN = 1.0
_SEED = 20240607


@dataclass(frozen=True)
class Interval:
    """A confidence interval of 95 %."""

    low: float
    high: float


@dataclass(frozen=True)
class Distribution:
    """The distribution of some values in milliseconds, and how many there were."""

    count: int
    least: float
    p50: float
    p90: float
    p95: float
    p99: float
    most: float
    mean: float
    p50_interval: Interval
    p99_interval: Interval
    p99_is_rough: bool


def percentile(values: NDArray[np.float64], q: float) -> float:
    """The q-th percentile (0 to 100) as numpy defines it: linear between the two nearest values."""
    return float(np.percentile(values, q))


def distribution(values_s: NDArray[np.float64]) -> Distribution | None:
    """The distribution of values given in seconds; None when there are none."""
    if not len(values_s):
        return None
    ordered = np.sort(values_s) * 1000
    p50, p90, p95, p99 = (float(value) for value in np.percentile(ordered, [50, 90, 95, 99]))
    return Distribution(
        count=len(ordered),
        least=float(ordered[0]),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        most=float(ordered[-1]),
        mean=float(ordered.mean()),
        p50_interval=percentile_interval(ordered, 50),
        p99_interval=percentile_interval(ordered, 99),
        p99_is_rough=len(ordered) * 0.01 < BEYOND,
    )


def percentile_interval(ordered: NDArray[np.float64], q: float) -> Interval:
    """The bootstrap's interval of a percentile of sorted values.

    The k-th smallest of a resample of n values is the original value at n times a Beta(k, n + 1 - k) variate, so a
    resample costs one random number and not n. Values are taken as independent of each other.
    """
    n = len(ordered)
    k = min(n, max(1, round(q / 100 * (n - 1)) + 1))
    drawn = np.random.default_rng(_SEED).beta(k, n + 1 - k, RESAMPLES)
    return _interval(ordered[np.minimum(n - 1, (drawn * n).astype(int))])


def rate_interval(at_s: NDArray[np.float64], amounts: NDArray[np.float64], start: float, end: float) -> Interval | None:
    """The bootstrap's interval of a rate: amounts (items) at moments, between start and end.

    Whole seconds are resampled, because neighbouring calls share what slows them down. None for less than three.
    """
    bins = int((end - start) / SECONDS_A_BIN)
    if bins < 3:  # noqa: PLR2004 - two seconds say nothing about spread
        return None
    per_bin, _ = np.histogram(at_s, bins=bins, range=(start, start + bins * SECONDS_A_BIN), weights=amounts)
    chosen = np.random.default_rng(_SEED).integers(0, bins, (RESAMPLES, bins))
    return _interval(per_bin[chosen].mean(axis=1) / SECONDS_A_BIN)


def _interval(values: NDArray[np.float64]) -> Interval:
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return Interval(float(low), float(high))
