"""The goals of the batching handler, as ratios to the stock handler's measurements, and their verdicts.

For p99, a measurement has a fixed number of calls, because the server does not serve waiting requests first in, first
out. With 8 clients, 3 are served again and again, and 5 wait until the load ends (the order of equal elements in Java's
PriorityQueue: local_aws/lmi/workers/jobs.py). The five waiting calls are more than 1 % of all calls only if a
measurement has fewer than 500 calls. Then the stock handler's p99 is the duration of the whole measurement. With more
calls, the same five clients wait as long, but p99 does not show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from handler_load import Sample

STOCK = "stock"
FP32, BF16 = "fp32", "bf16"
ALONE, CROWD_OF_8, CROWD_OF_32 = 1, 8, 32
CALLS_FOR_P99 = {True: 360, False: 160}
"""The calls of a turn with 8 clients, for mixed lengths (True) and for 512 tokens: over 100, and under 500."""


@dataclass(frozen=True)
class Case:
    """A case of the comparison: `clients` clients send lists of `items` texts, of 512 tokens or of mixed lengths."""

    clients: int
    items: int
    mixed: bool

    @property
    def name(self) -> str:
        """Return the case's name in the printed table."""
        sent = f"list of {self.items}" if self.items > 1 else f"{self.clients} client{'s'[: self.clients - 1]}"
        return f"{'mixed' if self.mixed else '512  '} {sent}"

    @property
    def calls(self) -> int | None:
        """Return the number of calls in a measurement; None if the measurement is limited by time."""
        return CALLS_FOR_P99[self.mixed] if self.clients == CROWD_OF_8 else None


CASES = [Case(*size, mixed) for mixed in (False, True) for size in ((1, 1), (1, 8), (8, 1), (32, 1))]


@dataclass(frozen=True)
class Goal:
    """A goal: a bound for one handler's value in certain cases, absolute or as a ratio to the stock handler's value."""

    text: str
    handler: str
    applies: Callable[[Case], bool]
    figure: Callable[[Sample, Sample], float]
    least: float | None = None
    below: float | None = None

    def met(self, value: float) -> bool:
        """Return True if a measured value is within the goal's bound."""
        return value >= self.least if self.least is not None else value < (self.below or 0.0)

    @property
    def bound(self) -> str:
        """Return the bound as text."""
        return f"at least {self.least:g}" if self.least is not None else f"under {self.below:g}"


def _rate(sample: Sample, stock: Sample) -> float:
    return sample.rate / stock.rate


def _p99(sample: Sample, stock: Sample) -> float:
    return sample.percentile(99) / stock.percentile(99)


GOALS = [
    *(Goal("items/s, one client", one, lambda case: case.clients == ALONE, _rate, least=0.95) for one in (FP32, BF16)),
    Goal("items/s, 32 clients, mixed", FP32, lambda case: case.clients == CROWD_OF_32 and case.mixed, _rate, least=1.3),
    Goal("items/s, 32 clients, mixed", BF16, lambda case: case.clients == CROWD_OF_32 and case.mixed, _rate, least=2.0),
    *(Goal("p99, 8 clients", one, lambda case: case.clients == CROWD_OF_8, _p99, below=0.1) for one in (FP32, BF16)),
    *(
        Goal(
            "sequences a pass, 32 clients",
            one,
            lambda case: case.clients == CROWD_OF_32,
            lambda sample, _: sample.sequences_per_pass,
            least=8.0,
        )
        for one in (FP32, BF16)
    ),
]


def verdicts(results: Mapping[Case, Mapping[str, Sample]]) -> list[tuple[bool, str]]:
    """Return (True if met, line to print) for each goal and case of the measured handlers."""
    lines = []
    for goal in GOALS:
        for case, samples in results.items():
            if goal.handler in samples and goal.applies(case):
                value = goal.figure(samples[goal.handler], samples[STOCK])
                met = goal.met(value)
                text = f"{case.name:<18} {goal.handler:<5} {goal.text:<29} {value:7.3f}, {goal.bound}"
                lines.append((met, f"{'met   ' if met else 'MISSED'}  {text}"))
    return lines
