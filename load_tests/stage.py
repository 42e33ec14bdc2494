"""The current phase in one process, the users that wait for a phase, and the clock for all times of a run."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_ANCHOR = time.time() - time.perf_counter()


def now() -> float:
    """Return the seconds since the epoch, advanced by the performance counter.

    The wall clock is read once per process, so that a correction of the wall clock during a run changes no latency.
    """
    return _ANCHOR + time.perf_counter()


WAIT_S = 1.0
IDLE_POLL_S = 0.005


@dataclass(frozen=True, kw_only=True)
class Cue:
    """The conductor's message to a process at the start of a phase.

    `callers` is the number of the process's users that take part. `rate` is the process's share of the planned calls
    per second; None in a closed load. `rank` is the number of the process in the run.
    """

    phase: int
    kind: str
    name: str
    batch: int
    callers: int
    rate: float | None
    rank: int
    seed: int

    def message(self) -> dict[str, Any]:
        """Return the fields as the data of a Locust message."""
        return dict(vars(self))


@dataclass
class Phase:
    """A phase in one process; all moments are in seconds since the epoch.

    `arrivals` yields an endless series of planned moments in an open load; None in a closed load. `pending` holds the
    planned moments that users are waiting for. `ends` is the moment at which the phase ended; None before.
    """

    cue: Cue
    arrivals: Iterator[float] | None
    ends: float | None = None
    pending: list[float] = field(default_factory=list)

    def next_due(self) -> float | None:
        """Return the next planned moment; None in a closed load, or if the phase ended before that moment."""
        if self.arrivals is None:
            return None
        planned = next(self.arrivals)
        return None if self.ends is not None and planned > self.ends else planned


class Stage:
    """One process's users wait here for a phase; `in_flight` is the number of calls that are not answered yet."""

    def __init__(self) -> None:
        self.phase: Phase | None = None
        self.in_flight = 0
        self._changed = Event()

    def begin(self, cue: Cue) -> None:
        """Start a phase; the previous phase must have ended."""
        seed = f"{cue.seed} {cue.phase} {cue.rank}"
        self.phase = Phase(cue, poisson(cue.rate, seed) if cue.rate and cue.callers else None)
        changed, self._changed = self._changed, Event()
        changed.set()

    def end(self) -> list[float]:
        """End the current phase; return the planned moments that have passed without a call."""
        phase, self.phase = self.phase, None
        if phase is None:
            return []
        ends = phase.ends = now()
        # Users also wait for moments after the end, which were never due.
        return [planned for planned in phase.pending if planned <= ends] + list(iter(phase.next_due, None))

    def wait(self, slot: int) -> Phase | None:
        """Return the phase in which user number `slot` takes part; None if no such phase begins within `WAIT_S`."""
        phase = self.phase
        if phase is None or slot >= phase.cue.callers:
            self._changed.wait(WAIT_S)
            phase = self.phase
        return phase if phase is not None and slot < phase.cue.callers else None

    def drain(self, timeout_s: float) -> bool:
        """Wait until every call is answered; return False if calls are still unanswered after the time-out."""
        deadline = now() + timeout_s
        while self.in_flight and now() < deadline:
            gevent.sleep(IDLE_POLL_S)
        return not self.in_flight


def poisson(rate: float, seed: str) -> Iterator[float]:
    """Yield, for ever, the moments of a Poisson process that starts now, `rate` per second on average."""
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    at = now()
    while True:
        at += rng.expovariate(rate)
        yield at


def shares(callers: int, users: Sequence[int]) -> list[int]:
    """Spread `callers` evenly over processes, none of which gets more than its number of `users`; return each share."""
    given = [0] * len(users)
    left = min(callers, sum(users))
    while left:
        for index, most in enumerate(users):
            if left and given[index] < most:
                given[index] += 1
                left -= 1
    return given


def deck(weights: Sequence[float], seed: str) -> Iterator[int]:
    """Yield, for ever, indexes of `weights`, each as often as its weight.

    The indexes are drawn like cards, one shuffled deck after the other. Each deck has every index in its share, so that
    the shares are right in short phases, too.
    """
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    least = min(weights)
    cards = [index for index, weight in enumerate(weights) for _ in range(min(1000, round(weight / least)))]
    while True:
        rng.shuffle(cards)
        yield from cards
