"""Target tracking as Application Auto Scaling does it, and the idle time after which everything is given up.

The alarm above the target needs three values of the metric, one a minute for `invocations` and one each ten seconds for
`concurrency`; the alarm below nine tenths of it needs 15 or 10 minutes. While an alarm lasts, it is acted on at each
value.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cohost.catalog.sections.scaling import TRACKING_TAIL_MINUTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cohost.catalog.sections.scaling import Metric
    from cohost.forecast.pricing.running_hours import Service
    from cohost.forecast.simulation.outcome import Fleet
    from cohost.forecast.simulation.rules import Rules


PERIODS: Final[Mapping[Metric, int]] = {"invocations": 60, "concurrency": 10}
"""Seconds between two values of each metric."""

VALUES_ABOVE: Final = 3
_LOW_SHARE: Final = 0.9
# Three tenths times ten is a little more than three to a computer; that must not become four.
_NOISE: Final = 1e-9


@dataclass
class Scaler:
    """Decides on the fleet's capacity; counts its decisions."""

    rules: Rules
    service: Service
    fleet: Fleet
    woken: int = 0
    grown: int = 0
    shrunk: int = 0
    idle_since: float = 0.0
    _above_s: float = 0.0
    _below_s: float = 0.0
    _minute_peak: float = 0.0
    _peaks: deque[float] = field(default_factory=deque)
    _base: int = 0
    _out_rests_until: float = 0.0
    _in_rests_until: float = 0.0

    def __post_init__(self) -> None:
        """Set out with the bounds that hold without a schedule."""
        self.least, self.most = self.rules.min, self.rules.max
        minutes = TRACKING_TAIL_MINUTES[self.rules.metric]
        self._below_window_s = minutes * 60
        self._above_window_s = VALUES_ABOVE * PERIODS[self.rules.metric]
        # The minute that is under way comes on top.
        self._peaks = deque(maxlen=minutes - 1)

    @property
    def can_grow(self) -> bool:
        """Whether an alarm above the target could do anything."""
        return self.fleet.wanted < self.most

    def value(self, total: float, copies: int, seconds: float) -> bool:
        """Take the metric of some seconds: `total` over all copies that serve; whether an alarm stands."""
        per_copy, target = total / copies, self.rules.target
        self._minute_peak = max(self._minute_peak, total)
        if per_copy > target:
            self._above_s, self._below_s = self._above_s + seconds, 0.0
        elif per_copy < _LOW_SHARE * target:
            self._above_s, self._below_s = 0.0, self._below_s + seconds
        else:
            self._above_s, self._below_s = 0.0, 0.0
        return self._above_s >= self._above_window_s or self._below_s >= self._below_window_s

    def end_minute(self) -> None:
        """Keep the highest value of the minute."""
        self._peaks.append(self._minute_peak)
        self._minute_peak = 0.0

    def track(self, total: float, now: float) -> None:
        """Act on the alarms; `total` is the latest value over all copies."""
        if self._above_s >= self._above_window_s:
            self._track_out(total, now)
        elif self._below_s >= self._below_window_s:
            self._track_in(now)

    def _track_out(self, total: float, now: float) -> None:
        """Grow. Until a growth is over and the cooldown after it, only what goes beyond it is added."""
        fleet = self.fleet
        if now >= self._out_rests_until:
            self._base = fleet.wanted
        more = math.ceil(total / self.rules.target - _NOISE) - fleet.serving
        self.grow_to(min(self._base + more, self.most), now)

    def _track_in(self, now: float) -> None:
        """Shrink to what the highest value of the alarm's minutes needs. To zero goes `rest`, which knows the tail."""
        if now < self._in_rests_until or self.fleet.starting:
            return
        highest = max([self._minute_peak, *self._peaks])
        needed = math.ceil(highest / self.rules.target - _NOISE)
        if needed or self.least:
            self.shrink_to(max(needed, self.least), now)

    def grow_to(self, wanted: int, now: float) -> None:
        """Ask for so many, if that is more."""
        if wanted > self.fleet.wanted:
            ready = now + self.service.growth_s
            self.fleet.grow(wanted - self.fleet.wanted, now, ready)
            self.grown += 1
            self._out_rests_until = ready + self.rules.scale_out_cooldown
            self._in_rests_until = 0.0

    def wake(self, now: float, ready: float) -> None:
        """Ask for one copy from zero, by the policy of the alarm on refused calls."""
        self.fleet.grow(1, now, ready)
        self.woken += 1
        self._in_rests_until = 0.0

    def shrink_to(self, wanted: int, now: float) -> None:
        """Give up all above so many, if there are such."""
        if wanted < self.fleet.wanted:
            self.fleet.shrink(self.fleet.wanted - wanted, now)
            self.shrunk += 1
            self._in_rests_until = now + self.rules.scale_in_cooldown

    def rest(self, now: float) -> None:
        """Go down to the minimum after the idle time."""
        limit = self._idle_limit()
        if limit is None or now - self.idle_since < limit or now < self._in_rests_until or self.fleet.starting:
            return
        self.shrink_to(self.least, now)

    def bound(self, least: int, most: int, now: float) -> None:
        """Take new bounds from a schedule, and come within them at once."""
        self.least, self.most = least, most
        self.grow_to(least, now)
        self.shrink_to(most, now)

    def _idle_limit(self) -> float | None:
        """Seconds without a call after which the fleet goes down to its minimum."""
        limits = []
        if self.rules.idle_minutes is not None:
            limits.append(self.rules.idle_minutes * 60.0)
        if self.least == 0 and self.rules.tracking_scales_in:
            limits.append(self.service.tail_s(self.rules.metric))
        return min(limits, default=None)
