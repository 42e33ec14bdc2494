"""Raw samples of a load test: one row a call, in one compressed file.

Percentiles are always computed from these rows, never from percentiles or histograms of parts.
"""

from __future__ import annotations

import io
import zipfile
from enum import IntEnum
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cohost.report.errors import ReportError

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
"""One call. Times are seconds since the epoch: when it was due (equal to `sent` in a closed load), when its first byte
was sent (NaN: never), when its answer was read. `phase` and `model` are indexes into the lists of the run's record,
`items` is the number of texts in the call, `status` the HTTP status that counts (the model's own where SageMaker passes
it on; 0 without an answer), `outcome` an Outcome, `worker` the rank of the generator process."""

TICK = np.dtype([("at", "f8"), ("worker", "u1"), ("cpu", "f4"), ("lag_mean", "f4"), ("lag_max", "f4")])
"""One look at a generator process, about once a second: when (seconds since the epoch), which one, its share of one
core since the last look (0 to 1), and how late its timers fired since then, in seconds."""


class Outcome(IntEnum):
    """How a call ended."""

    OK = 0
    THROTTLED = 1
    NOT_READY = 2
    MODEL_ERROR = 3
    NO_CAPACITY = 4
    REFUSED = 5
    WRONG_ANSWER = 6
    TIMED_OUT = 7
    CONNECTION = 8
    UNFINISHED = 9
    UNSENT = 10
    WORKER_STOPPED = 11

    @property
    def label(self) -> str:
        """The outcome in words."""
        return _LABELS[self]


_LABELS = {
    Outcome.OK: "answered",
    Outcome.THROTTLED: "throttled",
    Outcome.NOT_READY: "model not ready",
    Outcome.MODEL_ERROR: "model error",
    Outcome.NO_CAPACITY: "no capacity",
    Outcome.REFUSED: "refused by the service",
    Outcome.WRONG_ANSWER: "200 with a wrong answer",
    Outcome.TIMED_OUT: "timed out",
    Outcome.CONNECTION: "connection failed",
    Outcome.UNFINISHED: "cut off by the end of the run",
    Outcome.UNSENT: "due, but never sent",
    Outcome.WORKER_STOPPED: "model's process stopped",
}

CUT_OFF = (Outcome.UNFINISHED, Outcome.UNSENT)
"""Outcomes that the end of a phase made: counted beside the failures, because nothing answered wrongly."""

Samples = np.ndarray[Any, np.dtype[np.void]]


def empty(dtype: np.dtype[np.void] = SAMPLE) -> Samples:
    """No samples."""
    return np.zeros(0, dtype)


def choose(samples: Samples, mask: NDArray[np.bool_]) -> Samples:
    """The rows for which a mask is true."""
    return cast("Samples", samples[mask])


def latency_s(samples: Samples) -> NDArray[np.float64]:
    """Seconds from the moment a call was due until its answer was read; what a caller of an open load waits."""
    return np.asarray(samples["done"] - samples["planned"], np.float64)


def service_s(samples: Samples) -> NDArray[np.float64]:
    """Seconds from the first byte sent until the answer was read."""
    return np.asarray(samples["done"] - samples["sent"], np.float64)


def answered(samples: Samples) -> Samples:
    """The calls that were answered with what was asked for."""
    return choose(samples, samples["outcome"] == Outcome.OK)


def failed(samples: Samples) -> Samples:
    """The calls that failed; what the end of a phase cut off is not among them."""
    return choose(samples, (samples["outcome"] != Outcome.OK) & ~np.isin(samples["outcome"], CUT_OFF))


def merge(parts: Sequence[Samples], dtype: np.dtype[np.void] = SAMPLE) -> Samples:
    """All rows of several arrays of one type."""
    return np.concatenate([empty(dtype), *parts])


def save(folder: Path, samples: Samples, ticks: Samples) -> None:
    """Write calls and looks at the generator to a run's folder."""
    np.savez_compressed(folder / SAMPLES_FILE, samples=samples, ticks=ticks)


def load(folder: Path) -> tuple[Samples, Samples]:
    """Read what `save` wrote.

    Raises:
        ReportError: the file is missing, damaged, or of another format.
    """
    path = folder / SAMPLES_FILE
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            samples, ticks = file["samples"], file["ticks"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        msg = f"{path}: cannot be read ({error}); allowed: the samples of a load test; fix: name the folder of a run"
        raise ReportError(msg) from error
    if samples.dtype != SAMPLE or ticks.dtype != TICK:
        msg = f"{path}: has other columns than this version writes; fix: repeat the run with this version"
        raise ReportError(msg)
    return samples, ticks
