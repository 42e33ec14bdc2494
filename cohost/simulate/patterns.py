"""Made-up traffic: patterns that are known from services, with chance in each minute."""

from __future__ import annotations

import datetime as dt
import math
import random
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from cohost.simulate.errors import SimulationError
from cohost.simulate.trace import MINUTE, MINUTES_PER_DAY, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

START: Final = dt.datetime(2027, 1, 4, tzinfo=dt.UTC)
"""A Monday, midnight UTC."""

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
    """A kind of traffic, each at the given rate while it is busy."""

    OFFICE_HOURS = "office-hours"
    CONSTANT = "constant"
    BURSTS = "bursts"
    NIGHTLY = "nightly"
    WEEKEND = "weekend"
    IDLE = "idle"


def make_trace(
    pattern: Pattern, *, rate: float = DEFAULT_RATE, days: int = DEFAULT_DAYS, seed: int = DEFAULT_SEED
) -> Trace:
    """A pattern's traffic from a Monday on: `rate` calls a second on average while it is busy, for so many days.

    office-hours: Monday to Friday 8 to 18; constant: always; bursts: six a day of five minutes each, at random;
    nightly: 2 to 3; weekend: Saturday and Sunday 9 to 22; idle: never. The number of calls of a minute is Poisson
    distributed. The same arguments give the same trace.

    Raises:
        SimulationError: the rate is not above 0.
    """
    if not 0 < rate < math.inf:
        raise SimulationError(f"--rate: {rate:g} is not allowed; allowed: above 0; fix: give calls a second, such as 5")
    chance = random.Random(seed)  # noqa: S311 - traffic, no secret
    mean = rate * MINUTE
    counts = [_poisson(chance, mean) if busy else 0 for busy in _busy(pattern, days, chance)]
    name = f"{pattern}, {days} days" if pattern is Pattern.IDLE else f"{pattern}, {days} days, {rate:g} calls/s"
    return Trace(name=name, start=START, counts=counts)


def _busy(pattern: Pattern, days: int, chance: random.Random) -> Sequence[bool]:
    """For each minute whether the pattern is busy."""
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
    """A Poisson number; for large means the normal distribution that it tends to, which takes one draw."""
    if mean > _LARGE:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    limit, product, count = math.exp(-mean), chance.random(), 0
    while product > limit:
        product *= chance.random()
        count += 1
    return count
