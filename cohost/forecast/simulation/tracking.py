"""Scale a replayed endpoint, by `cohost.endpoint.scaling_rules` and by the catalog's idle time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cohost.endpoint.scaling_rules import (
    ALARM_REPEAT_S,
    LOW_SHARE,
    PERIOD_S,
    TAIL_MINUTES,
    TRACKING_ALARMS,
    Cooldowns,
    tracked_capacity,
)

if TYPE_CHECKING:
    from cohost.forecast.pricing.running_hours import Service
    from cohost.forecast.simulation.outcome import Fleet
    from cohost.forecast.simulation.rules import Rules


@dataclass
class Scaler:
    """The auto scaling of a replay, which changes the capacity of `fleet`.

    `woken` counts starts from zero copies, `grown` scale-outs, and `shrunk` scale-ins. `idle_since` is the second of
    the trace since which there have been no calls.
    """

    rules: Rules
    service: Service
    fleet: Fleet
    woken: int = 0
    grown: int = 0
    shrunk: int = 0
    idle_since: float = 0.0
    _above_s: float = 0.0
    _below_s: float = 0.0
    _triggered: float | None = None
    _minute_peak: float = 0.0
    _peaks: deque[float] = field(default_factory=deque)
    _cooldowns: Cooldowns = field(default_factory=Cooldowns)

    def __post_init__(self) -> None:
        """Set the minimum and the maximum capacity to those that apply without a schedule."""
        self.least, self.most = self.rules.min, self.rules.max
        period = PERIOD_S[self.rules.metric]
        self._above_window_s, self._below_window_s = (count * period for count in TRACKING_ALARMS[period])
        # One period less, because the current minute counts too.
        self._peaks = deque(maxlen=TAIL_MINUTES[self.rules.metric] - 1)

    @property
    def can_grow(self) -> bool:
        """Return True if the capacity is below its upper bound, so that an alarm can scale out."""
        return self.fleet.desired < self.most

    def value(self, total: float, copies: int, seconds: float) -> bool:
        """Record the metric's value during `seconds` seconds; return True if an alarm of target tracking is active.

        `total` is the metric's sum over all serving copies, and `copies` is the number of these copies.
        """
        per_copy, target = total / copies, self.rules.target
        self._minute_peak = max(self._minute_peak, total)
        if per_copy > target:
            self._above_s, self._below_s = self._above_s + seconds, 0.0
        elif per_copy < LOW_SHARE * target:
            self._above_s, self._below_s = 0.0, self._below_s + seconds
        else:
            self._above_s, self._below_s = 0.0, 0.0
        active = self._above_s >= self._above_window_s or self._below_s >= self._below_window_s
        if not active:
            self._triggered = None
        return active

    def end_minute(self) -> None:
        """Record the metric's highest value in the minute that ends."""
        self._peaks.append(self._minute_peak)
        self._minute_peak = 0.0

    def track(self, total: float, now: float) -> None:
        """Scale as the active alarm requires, when it begins and once per minute while it lasts.

        `total` is the metric's latest value, summed over all serving copies.
        """
        if self._triggered is not None and now < self._triggered + ALARM_REPEAT_S:
            return
        self._triggered = now
        if self._above_s >= self._above_window_s:
            self._track_out(total, now)
        elif self._below_s >= self._below_window_s:
            self._track_in(now)

    def _track_out(self, total: float, now: float) -> None:
        per_copy, target = total / self.fleet.serving, self.rules.target
        desired = self._cooldowns.allowed(
            self.fleet.desired, now, lambda copies: min(tracked_capacity(copies * per_copy, target), self.most)
        )
        self.grow_to(desired or 0, now)

    def _track_in(self, now: float) -> None:
        """Scale in to the capacity for the metric's highest value in the alarm's minutes; only `rest` goes to zero."""
        if self.fleet.starting:
            return
        needed = tracked_capacity(max([self._minute_peak, *self._peaks]), self.rules.target)
        desired = self._cooldowns.allowed(self.fleet.desired, now, lambda _: max(needed, self.least))
        if desired:
            self.shrink_to(desired, now)

    def grow_to(self, desired: int, now: float) -> None:
        """Scale out to the desired capacity, if that is more than the current capacity."""
        if desired > self.fleet.desired:
            ready = now + self.service.growth_s
            self._cooldowns.begin_out(self.fleet.desired, now, ready + self.rules.scale_out_cooldown)
            self.fleet.grow(desired - self.fleet.desired, now, ready)
            self.grown += 1

    def wake(self, now: float, ready: float) -> None:
        """Start one copy if there is none, as the policy of the alarm on refused calls does."""
        self.fleet.grow(1, now, ready)
        self.woken += 1
        self._cooldowns.in_until = 0.0

    def shrink_to(self, desired: int, now: float) -> None:
        """Scale in to the desired capacity, if that is less than the current capacity."""
        if desired < self.fleet.desired:
            self.fleet.shrink(self.fleet.desired - desired, now)
            self.shrunk += 1
            self._cooldowns.in_until = now + self.rules.scale_in_cooldown

    def rest(self, now: float) -> None:
        """Scale in to the minimum if the idle time has passed."""
        limit = self._idle_limit()
        if limit is None or now - self.idle_since < limit or now < self._cooldowns.in_until or self.fleet.starting:
            return
        self.shrink_to(self.least, now)

    def bound(self, least: int, most: int, now: float) -> None:
        """Apply a schedule's new minimum and maximum, and change a capacity outside them at once."""
        self.least, self.most = least, most
        self.grow_to(least, now)
        self.shrink_to(most, now)

    def _idle_limit(self) -> float | None:
        """Return the seconds without a call after which capacity falls to its minimum; None if it never does so."""
        limits = []
        if self.rules.idle_minutes is not None:
            limits.append(self.rules.idle_minutes * 60.0)
        if self.least == 0 and self.rules.tracking_scales_in:
            limits.append(self.service.tail_s(self.rules.metric))
        return min(limits, default=None)
