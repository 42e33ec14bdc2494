"""Queue the calls of a replay, and count those answered, delayed by a cold start, refused and timed out."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cohost.forecast.pricing.running_hours import Service


SHARES: Final = 1000
"""The number of parts of a utilisation of 1; utilisation is counted in thousandths."""

_POINTS: Final = 5
_SAME_S: Final = 0.1


@dataclass
class Cohort:
    """Waiting calls whose arrivals are spread evenly between the seconds `first` and `last` of a trace.

    `waking` is True if the calls found no copy of the inference component, or wait behind calls that found none.
    """

    calls: int
    first: float
    last: float
    waking: bool

    def take(self, calls: int) -> tuple[float, float]:
        """Remove the oldest calls, and return the arrival times, in seconds, of the first and the last removed call."""
        share = calls / self.calls
        first, last = self.first, self.first + (self.last - self.first) * share
        self.calls -= calls
        self.first = last
        return first, last


@dataclass
class Tally:
    """The numbers of a replay's calls by outcome and by waiting time.

    `delayed` is the number of calls that were answered after a cold start.
    """

    answered: int = 0
    delayed: int = 0
    refused: int = 0
    timed_out: int = 0
    steady: Counter[int] = field(default_factory=Counter)
    """The number of calls answered without a backlog, by the utilisation of the copies in thousandths."""
    waits: Counter[float] = field(default_factory=Counter)
    """The number of calls answered behind a backlog, by their wait in seconds, rounded to tenths."""
    delays: Counter[float] = field(default_factory=Counter)
    """The number of calls answered after a cold start, by their wait in seconds; `waits` has these calls too."""
    lost: Counter[int] = field(default_factory=Counter)
    """Refused and timed-out calls, by minute of the trace."""
    late: Counter[int] = field(default_factory=Counter)
    """Calls that waited for a cold start, by the minute of the trace in which they were answered."""

    def steadily(self, calls: int, utilisation: float) -> None:
        """Count calls that were answered without a queue before them, at this utilisation (0 to 1) of the copies."""
        self.answered += calls
        self.steady[round(utilisation * SHARES)] += calls

    def refuse(self, calls: int, now: float) -> None:
        """Count calls that were refused by `now`: they found no copy and did not wait, or their callers gave up."""
        self.refused += calls
        self.lost[_minute_before(now)] += calls

    def time_out(self, calls: int, now: float) -> None:
        """Count calls that timed out in an overloaded server by `now`."""
        self.timed_out += calls
        self.lost[_minute_before(now)] += calls

    def wait(self, calls: int, first: float, last: float, *, waking: bool, now: float) -> None:
        """Count calls answered by `now` whose waits are spread evenly between `first` and `last` seconds."""
        self.answered += calls
        if waking:
            self.delayed += calls
            self.late[_minute_before(now)] += calls
        points = min(_POINTS, calls) if abs(last - first) > _SAME_S else 1
        for index in range(points):
            share = (index + 1) * calls // points - index * calls // points
            wait = round(max(0.0, first + (last - first) * (index + 0.5) / points), 1)
            self.waits[wait] += share
            if waking:
                self.delays[wait] += share


def _minute_before(now: float) -> int:
    """Return the index of the minute of a trace that contains the second `now`, or that ends at it."""
    return max(0, math.ceil(now / 60) - 1)


class CallQueue:
    """The queue of a replay's waiting calls, first in first out.

    If callers are `patient`, a call at zero copies, and each call behind it, waits for a copy up to the wake time-out;
    otherwise the call is refused. In an overloaded server a call waits up to the call time-out; a call that would wait
    longer times out at once and takes no capacity.
    """

    def __init__(self, service: Service, tally: Tally, *, patient: bool) -> None:
        self._service = service
        self._tally = tally
        self._patient = patient
        self._cohorts: deque[Cohort] = deque()
        self._credit = 0.0
        self.backlog = 0

    def pass_time(self, start: float, end: float, arriving: int, copies: int) -> int:
        """Let calls arrive evenly between two seconds and copies serve them; return the number sent to the copies."""
        if copies == 0:
            self._arrive_without_copies(start, end, arriving)
            return 0
        room = copies * self._service.requests_per_second * (end - start)
        if not self.backlog and arriving < room:
            self._tally.steadily(arriving, arriving / room)
            return arriving
        waking = bool(self._cohorts) and self._cohorts[0].waking
        self._give_up(start)
        self._join(arriving, start, end, waking=bool(self._cohorts) and self._cohorts[-1].waking)
        served = self._serve(start, end, room)
        self._time_out(copies, end)
        return served if waking else arriving

    def _arrive_without_copies(self, start: float, end: float, arriving: int) -> None:
        self._join(arriving, start, end, waking=True)
        if self._patient:
            self._give_up(end)
        elif self.backlog:
            # Calls still waiting when the last copy was removed also wait for a cold start.
            self._tally.refuse(self.backlog, end)
            self.backlog = 0
            self._cohorts.clear()

    def _join(self, calls: int, start: float, end: float, *, waking: bool) -> None:
        if calls:
            self._cohorts.append(Cohort(calls, start, end, waking))
            self.backlog += calls

    def _serve(self, start: float, end: float, room: float) -> int:
        """Serve up to `room` waiting calls, the oldest first, evenly between two seconds; return the number served."""
        self._credit += room
        can = min(int(self._credit), self.backlog)
        left, done = can, 0
        while left:
            cohort = self._cohorts[0]
            part = min(left, cohort.calls)
            first, last = cohort.take(part)
            begin, finish = (start + (end - start) * min(1.0, (done + add) / room) for add in (0, part))
            self._tally.wait(part, begin - first, finish - last, waking=cohort.waking, now=end)
            if not cohort.calls:
                self._cohorts.popleft()
            left, done = left - part, done + part
        self.backlog -= can
        # Unused capacity cannot be saved for later.
        self._credit = self._credit - can if self.backlog else 0.0
        return can

    def _give_up(self, now: float) -> None:
        """Refuse the waiting calls whose callers have retried for longer than the wake time-out."""
        oldest = now - self._service.wake_timeout_s
        while self._cohorts and self._cohorts[0].waking and self._cohorts[0].first < oldest:
            cohort = self._cohorts[0]
            length = cohort.last - cohort.first
            share = 1.0 if cohort.last <= oldest or not length else (oldest - cohort.first) / length
            calls = int(cohort.calls * share + 0.5)
            if calls:
                cohort.take(calls)
                self.backlog -= calls
                self._tally.refuse(calls, now)
            if cohort.calls:
                return
            self._cohorts.popleft()

    def _time_out(self, copies: int, now: float) -> None:
        """Time out the youngest waiting calls, if they would wait for longer than the call time-out."""
        room = int(self._service.call_timeout_s * copies * self._service.requests_per_second)
        excess = self.backlog - room
        while excess > 0 and self._cohorts and not self._cohorts[-1].waking:
            cohort = self._cohorts[-1]
            calls = min(excess, cohort.calls)
            cohort.calls -= calls
            self.backlog -= calls
            self._tally.time_out(calls, now)
            excess -= calls
            if not cohort.calls:
                self._cohorts.pop()
