"""What a replay found, in numbers that a reader compares."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from cohost.pricing import DAYS_PER_MONTH
from cohost.routing import SCALE_TO_ZERO
from cohost.simulate.calls import SHARES
from cohost.simulate.fleet import area, billed_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cohost.simulate.calls import Tally
    from cohost.simulate.fleet import Steps
    from cohost.simulate.rules import Rules
    from cohost.simulate.service import Service
    from cohost.simulate.trace import Trace

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
