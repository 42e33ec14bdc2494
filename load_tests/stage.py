"""The phase under way in one process, the users that wait for it, and the clock for all times of a run."""

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
    """Return the seconds since the epoch, with the steady progress of the performance counter.

    The wall clock is read once per process, so that a correction of the wall clock during a run changes no latency.
    """
    return _ANCHOR + time.perf_counter()


WAIT_S = 1.0
IDLE_POLL_S = 0.005


@dataclass(frozen=True, kw_only=True)
class Cue:
    """The conductor's message to a process at the start of a phase.

    `callers` is the number of the process's users that take part, `rate` the process's part of the planned calls per
    second (None in a closed load), `rank` the number of the process in the run.
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
        """Return the cue as the data of a message."""
        return dict(vars(self))


@dataclass
class Phase:
    """A phase in one process; all moments are in seconds since the epoch.

    `arrivals` yields the planned moments of an open load, without an end; None in a closed load. `pending` holds the
    planned moments that users wait for. `ends` is None until the phase has ended.
    """

    cue: Cue
    arrivals: Iterator[float] | None
    ends: float | None = None
    pending: list[float] = field(default_factory=list)

    def next_due(self) -> float | None:
        """Return the next planned moment of an open load; None in a closed load, or if the phase ended before it."""
        if self.arrivals is None:
            return None
        planned = next(self.arrivals)
        return None if self.ends is not None and planned > self.ends else planned


class Stage:
    """The stage of one process, at which users wait for a phase; `in_flight` is the number of calls under way."""

    def __init__(self) -> None:
        self.phase: Phase | None = None
        self.in_flight = 0
        self._changed = Event()

    def begin(self, cue: Cue) -> None:
        """Start a phase; the phase before must have been ended."""
        seed = f"{cue.seed} {cue.phase} {cue.rank}"
        self.phase = Phase(cue, poisson(cue.rate, seed) if cue.rate and cue.callers else None)
        changed, self._changed = self._changed, Event()
        changed.set()

    def end(self) -> list[float]:
        """End the phase under way; return the planned moments that have passed without a call."""
        phase, self.phase = self.phase, None
        if phase is None:
            return []
        ends = phase.ends = now()
        # Users also wait for moments after the end, which were never due.
        return [planned for planned in phase.pending if planned <= ends] + list(iter(phase.next_due, None))

    def wait(self, slot: int) -> Phase | None:
        """Return the phase in which the user with this number takes part; None if none begins within `WAIT_S`."""
        phase = self.phase
        if phase is None or slot >= phase.cue.callers:
            self._changed.wait(WAIT_S)
            phase = self.phase
        return phase if phase is not None and slot < phase.cue.callers else None

    def drain(self, timeout_s: float) -> bool:
        """Wait until no call is under way; return False if calls are still under way after the time-out."""
        deadline = now() + timeout_s
        while self.in_flight and now() < deadline:
            gevent.sleep(IDLE_POLL_S)
        return not self.in_flight


def poisson(rate: float, seed: str) -> Iterator[float]:
    """Yield the moments of a Poisson process from now on, `rate` per second on average, without an end."""
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    at = now()
    while True:
        at += rng.expovariate(rate)
        yield at


def shares(callers: int, users: Sequence[int]) -> list[int]:
    """Return the number of callers of each process: `callers` spread evenly, at most a process's number of users."""
    given = [0] * len(users)
    left = min(callers, sum(users))
    while left:
        for index, most in enumerate(users):
            if left and given[index] < most:
                given[index] += 1
                left -= 1
    return given


def deck(weights: Sequence[float], seed: str) -> Iterator[int]:
    """Yield indexes of weights, drawn by weight, without an end.

    Whole shuffled decks are drawn, in which each index has its share, so that short phases have the right shares too.
    """
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    least = min(weights)
    cards = [index for index, weight in enumerate(weights) for _ in range(min(1000, round(weight / least)))]
    while True:
        rng.shuffle(cards)
        yield from cards
