"""One clock for all times of a run."""

from __future__ import annotations

import time

_ANCHOR = time.time() - time.perf_counter()


def now() -> float:
    """Seconds since the epoch, with the steady progress of the performance counter.

    The wall clock is read once a process: a correction of it during a run must not bend a latency.
    """
    return _ANCHOR + time.perf_counter()
