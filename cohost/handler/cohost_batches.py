"""Which sequences share a forward pass: those whose padding costs less than a pass of their own would.

A pass is taken to cost a fixed part (launches, Python) and a part in line with its padded tokens. The fixed part, put
in tokens, is `pass_cost`; it is measured on load.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Lengths are compared in steps of this many tokens: fewer to weigh, and finer ones make no difference.
_STEP = 8


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The largest batch, in padded tokens and in sequences, and the fixed cost of a pass in tokens."""

    tokens: int
    sequences: int
    pass_cost: int

    def sequences_of(self, length: int) -> int:
        """How many sequences of a length fit; one always does, since it cannot be split."""
        return max(1, min(self.sequences, self.tokens // length))


def together(lengths: Sequence[int], limits: BatchLimits) -> list[int]:
    """The batch of the first sequence, as indices into `lengths` (tokens, in the order of claim).

    All lengths are split into ranges so that the cost of all passes together is least; the batch is from the range that
    holds the first sequence, which is always in it, and prefers those with an earlier claim.
    """
    low, high = _range_of(lengths[0], _cheapest_ranges([_stepped(length) for length in lengths], limits))
    batch: list[int] = []
    longest = 0
    for index, length in enumerate(lengths):
        if low < _stepped(length) <= high:
            longest_with = max(longest, length)
            if batch and len(batch) >= limits.sequences_of(longest_with):
                continue
            batch.append(index)
            longest = longest_with
    return batch


def in_order(lengths: Sequence[int], limits: BatchLimits) -> list[int]:
    """The batch of the first sequence where nothing is padded: all that fit, in the order of claim."""
    batch: list[int] = []
    tokens = 0
    for index, length in enumerate(lengths[: limits.sequences]):
        if not batch or tokens + length <= limits.tokens:
            batch.append(index)
            tokens += length
    return batch


def _stepped(length: int) -> int:
    return -(-length // _STEP) * _STEP


def _range_of(length: int, bounds: Sequence[int]) -> tuple[int, int]:
    return next((low, high) for low, high in pairwise((0, *bounds)) if length <= high)


def _cheapest_ranges(lengths: Sequence[int], limits: BatchLimits) -> list[int]:
    """The upper bounds of the ranges, shortest first.

    Works through the different lengths from the shortest: the best split up to one of them is the best split up to a
    shorter one, and one range for what lies between.
    """
    counts = sorted(Counter(lengths).items())
    upper = [length for length, _ in counts]
    below = [0, *accumulate(number for _, number in counts)]
    best = [0.0] + [inf] * len(upper)
    start = [0] * (len(upper) + 1)
    for end, length in enumerate(upper, 1):
        fitting = limits.sequences_of(length)
        for begin in range(end):
            number = below[end] - below[begin]
            cost = best[begin] + -(-number // fitting) * limits.pass_cost + number * length
            if cost < best[end]:
                best[end], start[end] = cost, begin
    bounds = []
    end = len(upper)
    while end:
        bounds.append(upper[end - 1])
        end = start[end]
    return bounds[::-1]
