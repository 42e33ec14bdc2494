"""Copies over time: serving, starting, given up; and the instances that bill for them."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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
