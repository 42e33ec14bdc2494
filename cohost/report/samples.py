"""Store a load test's raw samples (one row per call, in one compressed file); compute percentiles and rates.

Percentiles are always computed from the rows of all calls, never from percentiles or histograms of parts.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from cohost.errors import ReportError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


SAMPLES_FILE = "samples.npz"

SAMPLE = np.dtype(
    [
        ("planned", "f8"),
        ("sent", "f8"),
        ("done", "f8"),
        ("phase", "u2"),
        ("model", "u2"),
        ("items", "u2"),
        ("status", "u2"),
        ("outcome", "u1"),
        ("worker", "u1"),
    ]
)
"""The columns of a row of samples, which is one call.

`planned`, `sent` and `done` are in seconds since the epoch: the moment when the call was due (equal to `sent` in a
closed load), when its first byte was sent (NaN: never), and when its answer was read. `phase` and `model` are indexes
into the lists of the run's record, `items` is the number of texts in the call, `status` the HTTP status that counts
(the model's own status if SageMaker passes it on; 0 without an answer), `outcome` an Outcome, `worker` the rank of the
generator process.
"""

TICK = np.dtype([("at", "f8"), ("worker", "u1"), ("cpu", "f4"), ("lag_mean", "f4"), ("lag_max", "f4")])
"""The columns of a tick, which is a measurement of one generator process about once per second.

`at` is in seconds since the epoch, `worker` the rank of the process, `cpu` its share of one core since its last tick
(0 to 1). `lag_mean` and `lag_max` are the delays with which its timers fired since then, in seconds.
"""


class Outcome(IntEnum):
    """The outcome of a call; `label` is its text."""

    label: str

    def __new__(cls, value: int, label: str = "") -> Self:
        """Create a member of the enumeration from its number and its label."""
        member = int.__new__(cls, value)
        member._value_, member.label = value, label
        return member

    OK = 0, "answered"
    THROTTLED = 1, "throttled"
    NOT_READY = 2, "model not ready"
    MODEL_ERROR = 3, "model error"
    NO_CAPACITY = 4, "no capacity"
    REFUSED = 5, "refused by the service"
    WRONG_ANSWER = 6, "200 with a wrong answer"
    TIMED_OUT = 7, "timed out"
    CONNECTION = 8, "connection failed"
    UNFINISHED = 9, "cut off by the end of the run"
    UNSENT = 10, "due, but never sent"
    WORKER_STOPPED = 11, "model's process stopped"

    def counted_as(self, status: int) -> str:
        """Return the name under which failed calls are counted: the label, and for some outcomes the HTTP status."""
        return f"{self.label} ({status})" if self in {Outcome.MODEL_ERROR, Outcome.REFUSED} else self.label


CUT_OFF = (Outcome.UNFINISHED, Outcome.UNSENT)
"""Outcomes caused by the end of a phase; they are counted separately from failures, because no answer was wrong."""

Samples = np.ndarray[Any, np.dtype[np.void]]


def empty(dtype: np.dtype[np.void] = SAMPLE) -> Samples:
    """Return an array without rows."""
    return np.zeros(0, dtype)


def choose(samples: Samples, mask: NDArray[np.bool_]) -> Samples:
    """Return the rows of samples for which a mask is True."""
    return cast("Samples", samples[mask])


def latency_s(samples: Samples) -> NDArray[np.float64]:
    """Return each call's seconds from the moment when the call was due until its answer was read."""
    return np.asarray(samples["done"] - samples["planned"], np.float64)


def service_s(samples: Samples) -> NDArray[np.float64]:
    """Return each call's seconds from its first byte sent until its answer was read."""
    return np.asarray(samples["done"] - samples["sent"], np.float64)


def answered(samples: Samples) -> Samples:
    """Return the calls that were answered with the requested results."""
    return choose(samples, samples["outcome"] == Outcome.OK)


def failed(samples: Samples) -> Samples:
    """Return the calls that failed; calls that the end of a phase cut off are not among them."""
    return choose(samples, (samples["outcome"] != Outcome.OK) & ~np.isin(samples["outcome"], CUT_OFF))


def merge(parts: Sequence[Samples], dtype: np.dtype[np.void] = SAMPLE) -> Samples:
    """Return one array with all rows of several arrays of one type."""
    return np.concatenate([empty(dtype), *parts])


def save(folder: Path, samples: Samples, ticks: Samples) -> None:
    """Write a run's samples and its load generator's ticks (measurements of itself) to the run's folder."""
    np.savez_compressed(folder / SAMPLES_FILE, samples=samples, ticks=ticks)


def load(folder: Path) -> tuple[Samples, Samples]:
    """Return the samples and the ticks that `save` wrote to a run's folder.

    Raises:
        ReportError: the file of samples is missing, damaged, or of another format.
    """
    path = folder / SAMPLES_FILE
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            samples, ticks = file["samples"], file["ticks"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ReportError(
            "result-unreadable",
            str(path),
            f"cannot be read ({error})",
            allowed="the samples of a load test",
            fix="name the folder of a run",
        ) from error
    if samples.dtype != SAMPLE or ticks.dtype != TICK:
        raise ReportError(
            "result-other-version",
            str(path),
            "has other columns than this version writes",
            fix="repeat the run with this version",
        )
    return samples, ticks


RESAMPLES = 2000
CONFIDENCE = 0.95
BEYOND = 5
"""The number of samples beyond a percentile below which the percentile is marked as rough."""

SECONDS_A_BIN = 1.0
_SEED = 20240607


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval of a percentile or a rate, in the unit of the percentile or rate."""

    low: float
    high: float


@dataclass(frozen=True)
class Distribution:
    """The distribution of `count` values, in milliseconds.

    `p99_is_rough` is True if fewer than five values lie above the p99.
    """

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
    """Return the q-th percentile (0 to 100) as numpy defines it: linear between the two nearest values."""
    return float(np.percentile(values, q))


def distribution(values_s: NDArray[np.float64]) -> Distribution | None:
    """Return the distribution, in milliseconds, of values in seconds; None if there is no value."""
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
    """Return the confidence interval of a percentile of sorted values, by the bootstrap.

    The k-th smallest value of a resample of n values is the original value at rank n times a Beta(k, n + 1 - k)
    variate, so a resample needs one random number instead of n. The values are assumed to be independent of each other.
    """
    n = len(ordered)
    k = min(n, max(1, round(q / 100 * (n - 1)) + 1))
    drawn = np.random.default_rng(_SEED).beta(k, n + 1 - k, RESAMPLES)
    return _interval(ordered[np.minimum(n - 1, (drawn * n).astype(int))])


def rate_interval(at_s: NDArray[np.float64], amounts: NDArray[np.float64], start: float, end: float) -> Interval | None:
    """Return the confidence interval of a rate per second, by the bootstrap; None if the time is under three seconds.

    `amounts` are the numbers of items answered at the times `at_s`; the rate is that of the time from `start` to `end`.
    Whole seconds are resampled instead of calls, because calls at nearly the same time share delays.
    """
    bins = int((end - start) / SECONDS_A_BIN)
    if bins < 3:  # noqa: PLR2004 - two seconds show no spread
        return None
    per_bin, _ = np.histogram(at_s, bins=bins, range=(start, start + bins * SECONDS_A_BIN), weights=amounts)
    chosen = np.random.default_rng(_SEED).integers(0, bins, (RESAMPLES, bins))
    return _interval(per_bin[chosen].mean(axis=1) / SECONDS_A_BIN)


def _interval(values: NDArray[np.float64]) -> Interval:
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return Interval(float(low), float(high))
