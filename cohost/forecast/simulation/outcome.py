"""Copies over time: serving, starting, given up; and the instances that bill for them.

What a replay found, in numbers that a reader compares.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from cohost.forecast.pricing.price_list import DAYS_PER_MONTH
from cohost.forecast.simulation.calls import SHARES
from cohost.routing import SCALE_TO_ZERO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cohost.forecast.pricing.running_hours import Service
    from cohost.forecast.simulation.calls import Tally
    from cohost.forecast.simulation.rules import Rules
    from cohost.forecast.simulation.traces import Trace


Steps = list[tuple[float, int]]
"""A number over time: each entry holds from its second on."""


@dataclass
class Fleet:
    """Copies of a component, or instances of a multi-model endpoint.

    `serving` answer calls; `starting` holds the seconds at which the others will. Both count as capacity that is asked
    for, and bill.
    """

    serving: int
    starting: list[float] = field(default_factory=list)
    serving_steps: Steps = field(default_factory=list)
    wanted_steps: Steps = field(default_factory=list)

    def __post_init__(self) -> None:
        """Note the beginning."""
        self._note(0.0)

    @property
    def wanted(self) -> int:
        """The capacity that scaling asked for."""
        return self.serving + len(self.starting)

    def grow(self, count: int, now: float, ready: float) -> None:
        """Ask for more, which serve from `ready` on."""
        for _ in range(count):
            insort(self.starting, ready)
        self._note(now)

    def settle(self, now: float) -> int:
        """Let serve what is ready by now; how many that were."""
        ready = 0
        while self.starting and self.starting[0] <= now:
            self.starting.pop(0)
            ready += 1
        if ready:
            self.serving += ready
            self._note(now)
        return ready

    def shrink(self, count: int, now: float) -> None:
        """Give up so many: what still starts first, the last asked for before the others."""
        unborn = min(count, len(self.starting))
        del self.starting[len(self.starting) - unborn :]
        self.serving -= count - unborn
        self._note(now)

    def _note(self, now: float) -> None:
        _step(self.serving_steps, now, self.serving)
        _step(self.wanted_steps, now, self.wanted)


def billed_steps(wanted: Sequence[tuple[float, int]], per_instance: int, tail_s: float) -> Steps:
    """Instances over time that bill for the wanted copies.

    An instance that is no longer needed bills for `tail_s` more; where copies are wanted again by then, they take it.
    """
    leaving: list[float] = []
    steps: Steps = []
    needed = 0
    for at, copies in wanted:
        _leave(steps, leaving, needed, until=at)
        now_needed = -(-copies // per_instance)
        if now_needed < needed:
            leaving += [at + tail_s] * (needed - now_needed)
        else:
            del leaving[max(0, len(leaving) - (now_needed - needed)) :]
        needed = now_needed
        _step(steps, at, needed + len(leaving))
    _leave(steps, leaving, needed, until=float("inf"))
    return steps


def _leave(steps: Steps, leaving: list[float], needed: int, *, until: float) -> None:
    """Let go what leaves by then."""
    while leaving and leaving[0] <= until:
        gone = leaving.pop(0)
        _step(steps, gone, needed + len(leaving))


def _step(steps: Steps, at: float, value: int) -> None:
    if steps and steps[-1][0] == at:
        steps[-1] = (at, value)
    elif not steps or steps[-1][1] != value:
        steps.append((at, value))


def area(steps: Sequence[tuple[float, int]], end: float) -> float:
    """The number over time, summed up to `end`: instances as instance-seconds."""
    ends = [at for at, _ in steps[1:]] + [end]
    return sum(value * max(0.0, min(until, end) - at) for (at, value), until in zip(steps, ends, strict=True))


QUANTILES: Final = (50, 90, 95, 99)
_TAIL_POINTS: Final = 20
_HIGHEST: Final = 0.99


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One replay's result. `patient`: callers waited for waking. `serving`, `wanted`: copies by second."""

    trace: Trace
    rules: Rules
    service: Service
    patient: bool
    tally: Tally
    unanswered: int
    cold_starts: int
    grown: int
    shrunk: int
    serving: Steps
    wanted: Steps

    @cached_property
    def instances(self) -> Steps:
        """Instances that bill, by second."""
        tail = self.service.instance_tail_s if self.rules.topology == SCALE_TO_ZERO else 0.0
        return billed_steps(self.wanted, self.rules.per_instance, tail)

    @property
    def instance_hours(self) -> float:
        """Hours of instances that bill within the trace."""
        return area(self.instances, self.trace.seconds) / 3600

    @property
    def hours_per_day(self) -> float:
        """Instance hours of a mean day."""
        return self.instance_hours / self.trace.days

    def per_day(self, usd_per_hour: float | None) -> float | None:
        """USD of a mean day; None where the price is unknown."""
        return None if usd_per_hour is None else self.hours_per_day * usd_per_hour

    def per_month(self, usd_per_hour: float | None) -> float | None:
        """USD of a month of 730 hours; None where the price is unknown."""
        day = self.per_day(usd_per_hour)
        return None if day is None else day * DAYS_PER_MONTH

    @property
    def unserved_share(self) -> float:
        """The share of calls that were refused, timed out, or delayed by waking; 0 without calls."""
        tally = self.tally
        return (tally.refused + tally.timed_out + tally.delayed + self.unanswered) / max(1, self.trace.calls)

    @cached_property
    def latency_s(self) -> Mapping[int, float] | None:
        """Percentiles of the time to an answer, waiting for waking included; None where nothing was answered."""
        times: Counter[float] = Counter()
        for utilisation, calls in self.tally.steady.items():
            _add_steady(times, min(utilisation / SHARES, _HIGHEST), calls, self.service)
        for wait, calls in self.tally.waits.items():
            times[wait + self.service.service_s] += calls
        return _quantiles(times)

    @cached_property
    def delay_s(self) -> Mapping[int, float] | None:
        """Percentiles of the wait of calls that waited for waking; None where there were none."""
        return _quantiles(self.tally.delays)


def _add_steady(times: Counter[float], utilisation: float, calls: int, service: Service) -> None:
    """Spread calls over the waits of a queue with chance arrivals (M/M/1): none, or exponential ones."""
    times[service.service_s] += calls * (1 - utilisation)  # type: ignore[assignment]
    mean = 1 / (service.requests_per_second * (1 - utilisation))
    for index in range(_TAIL_POINTS):
        share = (index + 0.5) / _TAIL_POINTS
        times[service.service_s - mean * math.log(1 - share)] += calls * utilisation / _TAIL_POINTS  # type: ignore[assignment]


def _quantiles(times: Mapping[float, float]) -> dict[int, float] | None:
    """Percentiles of values with weights: the smallest value that so many do not exceed."""
    total = sum(times.values())
    if not total:
        return None
    found: dict[int, float] = {}
    reached, wanted = 0.0, list(QUANTILES)
    for value in sorted(times):
        reached += times[value]
        while wanted and reached >= total * wanted[0] / 100 - 1e-9:
            found[wanted.pop(0)] = value
    return found
