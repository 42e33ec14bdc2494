"""Replay a trace's calls against an endpoint that scales, minute by minute.

The calls of a minute arrive evenly. CloudWatch receives a metric's value at the end of each period, which is one
minute, or ten seconds if the metric is concurrency. A minute is processed in one step if its capacity does not change
and no calls wait; otherwise it is processed period by period.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final

from cohost.endpoint.scaling_rules import PERIOD_S
from cohost.forecast.simulation.calls import CallQueue, Tally
from cohost.forecast.simulation.outcome import Fleet, Outcome
from cohost.forecast.simulation.tracking import Scaler
from cohost.routing import SCALE_TO_ZERO

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cohost.forecast.pricing.running_hours import Service
    from cohost.forecast.simulation.rules import Rules
    from cohost.forecast.simulation.traces import Trace


_MINUTE: Final = 60

_HIGHEST_STEADY: Final = 0.99
"""The utilisation above which a queue does not settle within minutes; waits are capped at their value here."""

Bounds = tuple[float, int, int]
"""The bounds of scaling from a time on: the second of the trace, the least and the most capacity."""


def replay(
    trace: Trace, rules: Rules, service: Service, *, patient: bool = False, bounds: Iterable[Bounds] = ()
) -> Outcome:
    """Return the outcome of a trace's calls to an endpoint that was just deployed.

    `patient`: True if callers that find no copy wait for a copy; otherwise their calls are refused. `bounds`: the
    minima and maxima of scaling that a schedule sets, in order of time.
    """
    return _Replay(trace, rules, service, patient=patient, bounds=bounds).run()


class _Replay:
    def __init__(
        self,
        trace: Trace,
        rules: Rules,
        service: Service,
        *,
        patient: bool,
        bounds: Iterable[Bounds],
    ) -> None:
        self._trace, self._rules, self._service, self._patient = trace, rules, service, patient
        self._bounds = deque(bounds)
        self._period = PERIOD_S[rules.metric]
        self._fleet = Fleet(rules.start)
        self._tally = Tally()
        self._queue = CallQueue(service, self._tally, patient=patient)
        self._scaler = Scaler(rules, service, self._fleet)
        self._first_refused: float | None = None

    def run(self) -> Outcome:
        """Return the outcome of the whole trace."""
        fleet, queue = self._fleet, self._queue
        for minute, calls in enumerate(self._trace.counts):
            while self._bounds and self._bounds[0][0] <= minute * 60.0:
                _, least, most = self._bounds.popleft()
                self._scaler.bound(least, most, minute * 60.0)
            if not calls and not fleet.desired and not queue.backlog:
                continue  # no copy runs and no call comes
            if not self._take_whole(minute, calls):
                self._take_by_periods(minute, calls)
            self._end_minute(calls, (minute + 1) * 60.0)
        return Outcome(
            trace=self._trace,
            rules=self._rules,
            service=self._service,
            patient=self._patient,
            tally=self._tally,
            unanswered=self._queue.backlog,
            cold_starts=self._scaler.woken,
            grown=self._scaler.grown,
            shrunk=self._scaler.shrunk,
            serving=self._fleet.serving_steps,
            desired=self._fleet.desired_steps,
        )

    def _take_whole(self, minute: int, calls: int) -> bool:
        """Process a whole minute in one step; return False if its capacity changes or calls wait."""
        fleet = self._fleet
        if fleet.starting or not fleet.serving or self._queue.backlog:
            return False
        utilisation = calls / (fleet.serving * self._service.requests_per_second * _MINUTE)
        if utilisation > _HIGHEST_STEADY:
            return False
        total = float(calls)
        if self._period < _MINUTE:
            total = self._concurrent(calls / 60, utilisation)
            if total > self._rules.target * fleet.serving and self._scaler.can_grow:
                return False
        self._tally.steadily(calls, utilisation)
        if self._scaler.value(total, fleet.serving, 60.0):
            self._scaler.track(total, (minute + 1) * 60.0)
        return True

    def _concurrent(self, calls_per_second: float, utilisation: float) -> float:
        """Return the number of concurrent calls without a backlog, by Little's law for random arrivals (M/M/1)."""
        utilisation = min(utilisation, _HIGHEST_STEADY)
        wait = utilisation / (self._service.requests_per_second * (1 - utilisation))
        return calls_per_second * (self._service.service_s + wait)

    def _take_by_periods(self, minute: int, calls: int) -> None:
        # Periods shorter than a minute matter only if an alarm could scale out within the minute.
        length = self._period if self._scaler.can_grow and self._fleet.serving else _MINUTE
        for second in range(0, _MINUTE, length):
            start = minute * 60.0 + second
            self._take_period(start, start + length, _arrived(calls, second + length) - _arrived(calls, second))

    def _take_period(self, start: float, end: float, calls: int) -> None:
        """Serve the calls of one period of the metric, split at the times when starting copies become ready."""
        fleet, queue = self._fleet, self._queue
        served_throughout = bool(fleet.serving)
        before, given, arrived, at = queue.backlog, 0, 0, start
        while at < end:
            until = min(end, fleet.starting[0]) if fleet.starting else end
            upto = calls if until == end else math.floor(calls * (until - start) / (end - start) + 0.5)
            if not fleet.serving and self._first_refused is None and upto > arrived:
                self._first_refused = at + (until - at) / (2 * (upto - arrived))
            given += queue.pass_time(at, until, upto - arrived, fleet.serving)
            arrived, at = upto, until
            if fleet.settle(until):
                self._scaler.idle_since = max(self._scaler.idle_since, until)
        if served_throughout and fleet.serving:
            self._measure(given, (before + queue.backlog) / 2, end - start, end)

    def _measure(self, given: int, backlog: float, seconds: float, now: float) -> None:
        """Pass the tracked metric's value of one period to the scaler."""
        serving = self._fleet.serving
        total = given * 60 / seconds
        if self._period < _MINUTE:
            room = serving * self._service.requests_per_second * seconds
            total = self._concurrent(min(given, room) / seconds, 0.0 if backlog else given / room) + backlog
        if self._scaler.value(total, serving, seconds):
            self._scaler.track(total, now)

    def _end_minute(self, calls: int, now: float) -> None:
        """Apply the scaling that happens only at a minute's end: cold starts, and scale-in after idle time."""
        fleet, scaler = self._fleet, self._scaler
        if calls:
            scaler.idle_since = now
        if self._first_refused is not None:
            if not fleet.desired and self._rules.topology == SCALE_TO_ZERO:
                scaler.wake(now, max(now, self._first_refused + self._service.wake_s))
            self._first_refused = None
        if fleet.serving:
            scaler.end_minute()
            if not calls and not self._queue.backlog:
                scaler.rest(now)


def _arrived(calls: int, second: int) -> int:
    """Return the number of calls that have arrived by this second of a minute that has `calls` calls in all."""
    return math.floor(calls * second / 60 + 0.5)
