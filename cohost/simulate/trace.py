"""Traffic as calls a minute, however it was recorded."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cohost.simulate.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MINUTE: Final = 60
MINUTES_PER_DAY: Final = 24 * 60
MOST_MINUTES: Final = 5 * 366 * MINUTES_PER_DAY


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Calls in each minute from `start` on, which is a whole minute in UTC; `name` says where they are from."""

    name: str
    start: dt.datetime
    counts: Sequence[int]

    @property
    def calls(self) -> int:
        """All calls."""
        return sum(self.counts)

    @property
    def days(self) -> float:
        """The length in days."""
        return len(self.counts) / MINUTES_PER_DAY

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return float(len(self.counts) * MINUTE)


def trace_of_bins(name: str, bins: Iterable[tuple[float, int]], width_s: float) -> Trace:
    """A trace of counts by time (seconds since 1970), each over `width_s` seconds.

    A bin wider than a minute is spread evenly over its minutes, in whole calls; narrower ones are added up.

    Raises:
        SimulationError: there is no bin, or they lie more than five years apart.
    """
    ordered = sorted(bins)
    if not ordered:
        raise SimulationError(f"{name}: holds no requests; allowed: one line or more; fix: name a file with requests")
    first = math.floor(ordered[0][0] / MINUTE)
    minutes = math.ceil((ordered[-1][0] + width_s) / MINUTE) - first
    if minutes > MOST_MINUTES:
        start, end = (dt.datetime.fromtimestamp(at, dt.UTC).date() for at in (ordered[0][0], ordered[-1][0]))
        raise SimulationError(
            f"{name}: reaches from {start} to {end}; allowed: five years at most; fix: mend the times that are wrong"
        )
    counts = [0] * minutes
    for at, calls in ordered:
        _spread(counts, at - first * MINUTE, width_s, calls)
    return Trace(name=name, start=dt.datetime.fromtimestamp(first * MINUTE, dt.UTC), counts=counts)


def _spread(counts: list[int], offset_s: float, width_s: float, calls: int) -> None:
    """Add calls that lie evenly in `width_s` seconds to the minutes of that time, so that none is lost to rounding."""
    index, given, end = int(offset_s // MINUTE), 0, offset_s + width_s
    while given < calls:
        share = min(1.0, ((index + 1) * MINUTE - offset_s) / width_s) if (index + 1) * MINUTE < end else 1.0
        upto = math.floor(calls * share + 0.5)
        counts[index] += upto - given
        given, index = upto, index + 1
