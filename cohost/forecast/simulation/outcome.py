"""Compute the results of a replay: copies over time, the instances billed for them, costs, losses and latencies."""

from __future__ import annotations

import math
from bisect import bisect_right
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
"""A number over time: pairs of a second of the trace and the number that applies from this second on."""


@dataclass
class Fleet:
    """The capacity of a replayed endpoint: copies of an inference component, or instances of a multi-model endpoint.

    `serving` is the number of copies that answer calls; `starting` holds the seconds at which the starting copies
    become ready. Serving and starting copies count as desired capacity and are billed.
    """

    serving: int
    starting: list[float] = field(default_factory=list)
    serving_steps: Steps = field(default_factory=list)
    desired_steps: Steps = field(default_factory=list)

    def __post_init__(self) -> None:
        """Record the initial number of copies."""
        self._note(0.0)

    @property
    def desired(self) -> int:
        """Return the capacity that scaling requested: serving and starting copies."""
        return self.serving + len(self.starting)

    def grow(self, count: int, now: float, ready: float) -> None:
        """Start `count` more copies, which serve from the second `ready` on."""
        self.starting = sorted([*self.starting, *[ready] * count])
        self._note(now)

    def settle(self, now: float) -> int:
        """Turn the starting copies that are ready by `now` into serving copies, and return their number."""
        ready = bisect_right(self.starting, now)
        if ready:
            del self.starting[:ready]
            self.serving += ready
            self._note(now)
        return ready

    def shrink(self, count: int, now: float) -> None:
        """Remove `count` copies: first starting copies, from the last requested one on, then serving copies."""
        unborn = min(count, len(self.starting))
        del self.starting[len(self.starting) - unborn :]
        self.serving -= count - unborn
        self._note(now)

    def _note(self, now: float) -> None:
        _step(self.serving_steps, now, self.serving)
        _step(self.desired_steps, now, self.desired)


def billed_steps(desired: Sequence[tuple[float, int]], per_instance: int, tail_s: float) -> Steps:
    """Return the number of billed instances over time, computed from the number of desired copies over time.

    An instance that is no longer needed is billed for another `tail_s` seconds; a copy that is requested within this
    time reuses the instance.
    """
    leaving: list[float] = []
    steps: Steps = []
    needed = 0
    for at, copies in desired:
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
    """Remove the instances whose billing has ended by the second `until`."""
    while leaving and leaving[0] <= until:
        gone = leaving.pop(0)
        _step(steps, gone, needed + len(leaving))


def _step(steps: Steps, at: float, value: int) -> None:
    if steps and steps[-1][0] == at:
        steps[-1] = (at, value)
    elif not steps or steps[-1][1] != value:
        steps.append((at, value))


def area(steps: Sequence[tuple[float, int]], end: float) -> float:
    """Return the integral of a number over time up to the second `end`; for instances, this is instance-seconds."""
    ends = [at for at, _ in steps[1:]] + [end]
    return sum(value * max(0.0, min(until, end) - at) for (at, value), until in zip(steps, ends, strict=True))


QUANTILES: Final = (50, 90, 95, 99)
_TAIL_POINTS: Final = 20
_HIGHEST: Final = 0.99


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one replay.

    `patient`: True if callers waited for a cold start. `unanswered`: the number of calls that still waited at the
    trace's end. `grown`, `shrunk`: the number of scale-outs and scale-ins. `serving`, `desired`: copies over time.
    """

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
    desired: Steps

    @cached_property
    def instances(self) -> Steps:
        """Return the number of billed instances over time."""
        tail = self.service.instance_tail_s if self.rules.topology == SCALE_TO_ZERO else 0.0
        return billed_steps(self.desired, self.rules.per_instance, tail)

    @property
    def instance_hours(self) -> float:
        """Return the billed instance hours within the trace."""
        return area(self.instances, self.trace.seconds) / 3600

    @property
    def hours_per_day(self) -> float:
        """Return the billed instance hours of an average day."""
        return self.instance_hours / self.trace.days

    def per_day(self, usd_per_hour: float | None) -> float | None:
        """Return the cost of an average day in USD; None if the price is unknown."""
        return None if usd_per_hour is None else self.hours_per_day * usd_per_hour

    def per_month(self, usd_per_hour: float | None) -> float | None:
        """Return the cost of a month of 730 hours in USD; None if the price is unknown."""
        day = self.per_day(usd_per_hour)
        return None if day is None else day * DAYS_PER_MONTH

    @property
    def unserved_share(self) -> float:
        """Return the share of calls that were not served at once; 0 if there were no calls.

        Calls that were not served at once are those that were refused, timed out, were delayed by a cold start, or
        still waited at the trace's end.
        """
        tally = self.tally
        return (tally.refused + tally.timed_out + tally.delayed + self.unanswered) / max(1, self.trace.calls)

    @cached_property
    def latency_s(self) -> Mapping[int, float] | None:
        """Return percentiles of the seconds to an answer, including cold starts; None if no call was answered."""
        times: Counter[float] = Counter()
        for utilisation, calls in self.tally.steady.items():
            _add_steady(times, min(utilisation / SHARES, _HIGHEST), calls, self.service)
        for wait, calls in self.tally.waits.items():
            times[wait + self.service.service_s] += calls
        return _quantiles(times)

    @cached_property
    def delay_s(self) -> Mapping[int, float] | None:
        """Return percentiles of the seconds that delayed calls waited; None if no call waited for a cold start."""
        return _quantiles(self.tally.delays)


def _add_steady(times: Counter[float], utilisation: float, calls: int, service: Service) -> None:
    """Add to `times` the seconds to an answer of calls that arrived when no calls waited.

    The waits are those of a queue with random arrivals (M/M/1): some calls do not wait, and the others wait for
    exponentially distributed times.
    """
    times[service.service_s] += calls * (1 - utilisation)  # type: ignore[assignment]
    mean = 1 / (service.requests_per_second * (1 - utilisation))
    for index in range(_TAIL_POINTS):
        share = (index + 0.5) / _TAIL_POINTS
        times[service.service_s - mean * math.log(1 - share)] += calls * utilisation / _TAIL_POINTS  # type: ignore[assignment]


def _quantiles(times: Mapping[float, float]) -> dict[int, float] | None:
    """Return percentiles of weighted values: the smallest values up to which n % of the total weight lies."""
    total = sum(times.values())
    if not total:
        return None
    found: dict[int, float] = {}
    reached, remaining = 0.0, list(QUANTILES)
    for value in sorted(times):
        reached += times[value]
        while remaining and reached >= total * remaining[0] / 100 - 1e-9:
            found[remaining.pop(0)] = value
    return found
