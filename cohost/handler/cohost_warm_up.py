"""The passes before READY: they reserve memory, wake the device, and measure the cost and the duration of a pass."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cohost_forward import TokenSequence
from .cohost_tasks import Want
from .cohost_texts import lengths_up_to
from .cohost_tokenizer import Encoded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cohost_forward import Forward
    from .cohost_loading import Loaded
    from .cohost_options import Options

logger = logging.getLogger(__name__)

_LEAST_PASS_COST = 64
# Under load a pass of the largest size may take this many times as long before it counts as hanging.
_TIMES_THE_LARGEST = 3
_SHORT = 8
_LONG = 64
_MANY = 8
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of the passes before READY.

    `pass_cost` is in tokens; `pass_timeout_s` is the time limit of a pass; `compiled` are the shapes (more than one
    sequence, tokens per sequence) for which the compiler has made programs.
    """

    pass_cost: int
    pass_timeout_s: float
    compiled: frozenset[tuple[bool, int]]


def warm_up(loaded: Loaded, options: Options, max_tokens: int) -> Measured:
    """Warm a model up, and measure the cost of a pass and the duration of the largest one.

    Args:
        loaded: the model.
        options: its settings; without `warm_up` only the measuring passes run.
        max_tokens: tokens of the largest pass, padding included.
    """
    want = Want.MEAN if options.task == "feature-extraction" else Want.LOGITS
    sample = loaded.samples[-1]
    shapes = list(_shapes_to_run(loaded, options, max_tokens)) if options.warm_up else []
    for shape in shapes:
        run_shape(loaded.forward, sample, shape, want)
    # Run it again: the first pass of a shape also reserves memory, chooses kernels and compiles.
    largest = shapes[0] if shapes else (1, loaded.limit)
    seconds = run_shape(loaded.forward, sample, largest, want)
    # On a CPU the largest batch is not run, since that would take seconds; its time is extrapolated.
    seconds *= max(1.0, max_tokens / (largest[0] * largest[1]))
    cost = options.pass_cost_tokens
    if cost is None:
        cost = max(_LEAST_PASS_COST, measure_pass_cost(loaded.forward, sample, loaded.limit, want))
    compiled = frozenset((sequences > 1, length) for sequences, length in [*shapes, largest])
    return Measured(cost, pass_timeout(options.pass_timeout_s, seconds), compiled)


def pass_timeout(wanted_s: float, largest_s: float) -> float:
    """Return the time limit of a pass in seconds: the configured one, but at least three times the largest pass."""
    least_s = _TIMES_THE_LARGEST * largest_s
    if least_s <= wanted_s:
        return wanted_s
    logger.warning(
        "pass_timeout_s: %g is raised to %.1f, three times the largest pass of this model here", wanted_s, least_s
    )
    return least_s


def _shapes_to_run(loaded: Loaded, options: Options, max_tokens: int) -> Iterator[tuple[int, int]]:
    # A CPU has no memory to reserve and no clock to raise: one pass is enough, and batches would take seconds.
    most = (max_tokens, options.max_batch_sequences) if loaded.device.type == "cuda" else (1, 1)
    yield from bucket_shapes(loaded.limit, *most)
    if options.compile:
        # The compiler makes one program per length for a single sequence, and another for more.
        for _, length in bucket_shapes(loaded.limit, 1, 1):
            yield from ((1, length), (2, length))


def bucket_shapes(limit: int, max_tokens: int, max_sequences: int) -> Iterator[tuple[int, int]]:
    """Yield the (sequences, tokens) of the largest batches: lengths double from 16 up to the limit, longest first.

    The longest comes first, because the memory that torch reserves for it serves all others.
    """
    for length in reversed(lengths_up_to(limit)):
        yield max(1, min(max_sequences, max_tokens // length)), length


def run_shape(forward: Forward, sample: Encoded, shape: tuple[int, int], want: Want) -> float:
    """Run a batch of a shape, made of a long enough sample, and return the seconds it took."""
    sequences, length = shape
    segments = None if sample.segments is None else sample.segments[:length]
    encoded = Encoded(sample.ids[:length], segments, truncated=False)
    batch = [TokenSequence(encoded, length, want) for _ in range(sequences)]
    started = time.perf_counter()
    forward(batch)
    return time.perf_counter() - started


def measure_pass_cost(forward: Forward, sample: Encoded, limit: int, want: Want) -> int:
    """Return the fixed cost of a pass in tokens: a short pass's time minus its share of a large one's."""
    long = min(_LONG, limit)

    def seconds(shape: tuple[int, int]) -> float:
        return min(run_shape(forward, sample, shape, want) for _ in range(_REPEATS))

    short_s, large_s = seconds((1, _SHORT)), seconds((_MANY, long))
    return pass_cost(short_s, _SHORT, large_s, _MANY * long)


def pass_cost(short_s: float, short_tokens: int, large_s: float, large_tokens: int) -> int:
    """Return the fixed cost of a pass from two timings: the tokens that take as long as its constant part."""
    per_token_s = max((large_s - short_s) / (large_tokens - short_tokens), 1e-9)
    return max(0, round(short_s / per_token_s) - short_tokens)
