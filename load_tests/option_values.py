"""What the load test's options take: each reads a text, or says what is allowed."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BATCH = 1024


def whole(least: int, most: int) -> Callable[[str], int]:
    """A type for whole numbers between two bounds, both included."""

    def read(text: str) -> int:
        return _read_whole(text, least, most)

    return read


def _read_whole(text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number from {least} to {most}")
    return value


def _number(text: str, allowed: str, *, least: float, most: float, above: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and (value > least if above else value >= least) and value <= most):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {allowed}")
    return value


def positive(text: str) -> float:
    """A number above 0."""
    return _number(text, "a number above 0", least=0, most=math.inf, above=True)


def not_negative(text: str) -> float:
    """A number of 0 or more."""
    return _number(text, "a number of 0 or more", least=0, most=math.inf, above=False)


def share(text: str) -> float:
    """A number from 0 to 1."""
    return _number(text, "a share from 0 to 1, such as 0.01 for one in a hundred", least=0, most=1, above=False)


def parse_sweep(text: str) -> tuple[int, ...]:
    """The values of a sweep, such as 1,2,4; brackets around them are fine."""
    parts = [part.strip() for part in text.strip().removeprefix("[").removesuffix("]").split(",")]
    return tuple(dict.fromkeys(_read_whole(part, 1, MAX_BATCH) for part in parts))


def parse_models(text: str) -> dict[str, float]:
    """Weights by model from `name=weight,…`; a name alone has the weight 1."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, weight = part.strip().partition("=")
        if not name or name in weights:
            allowed = "each name once, as name or name=weight, with commas between"
            raise argparse.ArgumentTypeError(f"{text!r}; allowed: {allowed}")
        weights[name] = positive(weight) if equals else 1.0
    return weights
