"""Make traces (traffic as calls per minute) from counted calls, or generate them.

Generated traffic follows a typical pattern (`Pattern`), with a random number of calls in each minute. The module
`trace_files` reads files of traffic.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from cohost.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


MINUTE: Final = 60
MINUTES_PER_DAY: Final = 24 * 60
MOST_MINUTES: Final = 5 * 366 * MINUTES_PER_DAY


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Traffic as the number of calls in each minute, from `start` (a whole minute in UTC) on; `name` is its source."""

    name: str
    start: dt.datetime
    counts: Sequence[int]

    @property
    def calls(self) -> int:
        """Return the number of calls in the whole trace."""
        return sum(self.counts)

    @property
    def days(self) -> float:
        """Return the length of the trace in days."""
        return len(self.counts) / MINUTES_PER_DAY

    @property
    def is_short(self) -> bool:
        """Return True if the trace is shorter than a day, so that amounts per day and per month are extrapolated."""
        return self.days < 1

    @property
    def seconds(self) -> float:
        """Return the length of the trace in seconds."""
        return float(len(self.counts) * MINUTE)


def trace_of_bins(name: str, bins: Iterable[tuple[float, int]], width_s: float) -> Trace:
    """Return the trace of calls that were counted in bins of `width_s` seconds.

    `bins` has the start (seconds since 1970) and the calls of each bin. The calls of a bin wider than a minute are
    distributed evenly over its minutes, as whole calls; narrower bins are added up.

    Raises:
        SimulationError: `bins` is empty, or spans more than five years.
    """
    ordered = sorted(bins)
    if not ordered:
        raise SimulationError(
            "trace-empty", name, "holds no requests", allowed="one line or more", fix="name a file with requests"
        )
    first = math.floor(ordered[0][0] / MINUTE)
    minutes = math.ceil((ordered[-1][0] + width_s) / MINUTE) - first
    if minutes > MOST_MINUTES:
        start, end = (dt.datetime.fromtimestamp(at, dt.UTC).date() for at in (ordered[0][0], ordered[-1][0]))
        raise SimulationError(
            "trace-long",
            name,
            f"reaches from {start} to {end}",
            allowed="five years at most",
            fix="correct the times that are wrong",
        )
    counts = [0] * minutes
    for at, calls in ordered:
        _spread(counts, at - first * MINUTE, width_s, calls)
    return Trace(name=name, start=dt.datetime.fromtimestamp(first * MINUTE, dt.UTC), counts=counts)


def _spread(counts: list[int], offset_s: float, width_s: float, calls: int) -> None:
    """Distribute the calls of one bin evenly over the counts of its minutes, without losing a call to rounding."""
    index, given, end = int(offset_s // MINUTE), 0, offset_s + width_s
    while given < calls:
        share = min(1.0, ((index + 1) * MINUTE - offset_s) / width_s) if (index + 1) * MINUTE < end else 1.0
        upto = math.floor(calls * share + 0.5)
        counts[index] += upto - given
        given, index = upto, index + 1


START: Final = dt.datetime(2027, 1, 4, tzinfo=dt.UTC)
"""The start of generated traces: a Monday, midnight UTC."""

DEFAULT_RATE: Final = 5.0
DEFAULT_DAYS: Final = 7
DEFAULT_SEED: Final = 1
BURSTS_PER_DAY: Final = 6
BURST_MINUTES: Final = 5
_FRIDAY: Final = 4
_OFFICE: Final = range(8, 18)
_NIGHT: Final = range(2, 3)
_LEISURE: Final = range(9, 22)
_LARGE: Final = 30.0


class Pattern(StrEnum):
    """A pattern of generated traffic, named by its busy hours, which `make_trace` defines."""

    OFFICE_HOURS = "office-hours"
    CONSTANT = "constant"
    BURSTS = "bursts"
    NIGHTLY = "nightly"
    WEEKEND = "weekend"
    IDLE = "idle"


def make_trace(
    pattern: Pattern, *, rate: float = DEFAULT_RATE, days: int = DEFAULT_DAYS, seed: int = DEFAULT_SEED
) -> Trace:
    """Return generated traffic of `days` days from a Monday on, with `rate` calls per second on average in busy hours.

    The busy hours (UTC) by pattern are: office-hours, Monday to Friday 8 to 18; constant, always; bursts, five minutes
    at random times, six times per day on average; nightly, 2 to 3; weekend, Saturday and Sunday 9 to 22; idle, never.
    The number of calls of a busy minute is Poisson-distributed. Equal arguments give an equal trace.

    Raises:
        SimulationError: the rate is not above 0.
    """
    if not 0 < rate < math.inf:
        raise SimulationError(
            "rate-invalid", "--rate", f"got {rate:g}", allowed="above 0", fix="give calls per second, such as 5"
        )
    chance = random.Random(seed)  # noqa: S311 - traffic, not a secret
    mean = rate * MINUTE
    counts = [_poisson(chance, mean) if busy else 0 for busy in _busy(pattern, days, chance)]
    name = f"{pattern}, {days} days" if pattern is Pattern.IDLE else f"{pattern}, {days} days, {rate:g} calls/s"
    return Trace(name=name, start=START, counts=counts)


def _busy(pattern: Pattern, days: int, chance: random.Random) -> Sequence[bool]:
    """Return, for each minute of a trace, True if the minute is in the pattern's busy hours."""
    if pattern is Pattern.BURSTS:
        return _bursts(days, chance)
    hours: dict[Pattern, Callable[[int, int], bool]] = {
        Pattern.OFFICE_HOURS: lambda day, hour: day <= _FRIDAY and hour in _OFFICE,
        Pattern.CONSTANT: lambda *_: True,
        Pattern.NIGHTLY: lambda _, hour: hour in _NIGHT,
        Pattern.WEEKEND: lambda day, hour: day > _FRIDAY and hour in _LEISURE,
        Pattern.IDLE: lambda *_: False,
    }
    is_busy = hours[pattern]
    return [is_busy(minute // MINUTES_PER_DAY % 7, minute // 60 % 24) for minute in range(days * MINUTES_PER_DAY)]


def _bursts(days: int, chance: random.Random) -> list[bool]:
    busy = [False] * (days * MINUTES_PER_DAY)
    for _ in range(days * BURSTS_PER_DAY):
        start = chance.randrange(len(busy))
        for minute in range(start, min(start + BURST_MINUTES, len(busy))):
            busy[minute] = True
    return busy


def _poisson(chance: random.Random, mean: float) -> int:
    """Return a Poisson-distributed number; for a large mean, approximate it by one normally distributed number."""
    if mean > _LARGE:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    limit, product, count = math.exp(-mean), chance.random(), 0
    while product > limit:
        product *= chance.random()
        count += 1
    return count
