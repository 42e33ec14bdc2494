"""The passes before READY: they reserve memory, wake the device up, and tell what a pass costs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .cohost_forward import TokenSequence
from .cohost_length import lengths_up_to
from .cohost_tokenizer import Encoded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cohost_forward import Forward
    from .cohost_tasks import Want

_SHORT = 8
_LONG = 64
_MANY = 8
_REPEATS = 3


def bucket_shapes(limit: int, max_tokens: int, max_sequences: int) -> Iterator[tuple[int, int]]:
    """(sequences, tokens) of the largest batches: lengths double from 16 up to the model's limit, the longest first.

    The longest first, because memory that torch has reserved for it serves all others.
    """
    for length in reversed(lengths_up_to(limit)):
        yield max(1, min(max_sequences, max_tokens // length)), length


def run_shape(forward: Forward, sample: Encoded, shape: tuple[int, int], want: Want) -> float:
    """Runs a batch of a shape, made of a long enough sample, and says how many seconds it took."""
    sequences, length = shape
    segments = None if sample.segments is None else sample.segments[:length]
    encoded = Encoded(sample.ids[:length], segments, truncated=False)
    batch = [TokenSequence(encoded, length, want) for _ in range(sequences)]
    started = time.perf_counter()
    forward(batch)
    return time.perf_counter() - started


def measure_pass_cost(forward: Forward, sample: Encoded, limit: int, want: Want) -> int:
    """The fixed cost of a pass, in tokens: what is left of a short pass's time after its share of a large one's."""
    long = min(_LONG, limit)

    def seconds(shape: tuple[int, int]) -> float:
        return min(run_shape(forward, sample, shape, want) for _ in range(_REPEATS))

    short_s, large_s = seconds((1, _SHORT)), seconds((_MANY, long))
    return pass_cost(short_s, _SHORT, large_s, _MANY * long)


def pass_cost(short_s: float, short_tokens: int, large_s: float, large_tokens: int) -> int:
    """From the times of two passes: the tokens that cost as much as the part of a pass that is there without any."""
    per_token_s = max((large_s - short_s) / (large_tokens - short_tokens), 1e-9)
    return max(0, round(short_s / per_token_s) - short_tokens)
