"""Sentence similarity from a feature-extraction answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def mean_pooled(tokens: Sequence[Sequence[float]]) -> list[float]:
    """The mean of a text's token vectors (tokens x hidden), scaled to length 1; shape: hidden.

    One text at a time needs no attention mask: nothing is padded.
    """
    sums = [math.fsum(column) for column in zip(*tokens, strict=True)]
    length = math.sqrt(math.fsum(value * value for value in sums))
    return [value / length for value in sums]


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """The cosine of the angle between two vectors of length 1."""
    return math.fsum(x * y for x, y in zip(a, b, strict=True))
