"""The warm-up of a loaded model: passes that reserve memory, raise the GPU's clock, and measure cost and time."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .cohost_frames import TokenSequence
from .cohost_memory import is_out_of_memory
from .cohost_tasks import Want
from .cohost_texts import lengths_up_to
from .cohost_tokenizer import Encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .cohost_forward import Forward
    from .cohost_loading import Loaded
    from .cohost_options import Options

logger = logging.getLogger(__name__)

_LEAST_PASS_COST = 64
# Under load the largest pass may take this many times its measured time before it counts as hanging.
_TIMES_THE_LARGEST = 3
_SHORT = 8
_LONG = 64
_MANY = 8
_REPEATS, _MOST_REPEATS = 3, 30
_STEADY_S = 0.1
# The longest pass on a GPU: a caller whose text comes just after a pass began waits for it, and larger passes gain
# little.
_LONGEST_PASS_S = 0.05
_LEAST_SHARE = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of the warm-up.

    `max_batch_tokens` is the size of the largest pass, padding included, and `pass_cost` the fixed cost of a pass, both
    in tokens. `pass_timeout_s` is the time limit of a pass in seconds. `compiled` has the shapes for which
    torch.compile has made programs; a shape is (True for more than one sequence, tokens per sequence).
    """

    max_batch_tokens: int
    pass_cost: int
    pass_timeout_s: float
    compiled: frozenset[tuple[bool, int]]

    def as_data(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {**asdict(self), "compiled": sorted(self.compiled)}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Measured:
        """Return the `Measured` of `as_data`, without compiled shapes: compiled programs end with their process."""
        return cls(**{**data, "compiled": frozenset()})


def warm_up(loaded: Loaded, options: Options, max_tokens: int) -> Measured:
    """Warm a model up, and measure a pass's fixed cost, the size of the largest pass, and its duration.

    Args:
        loaded: the model.
        options: the model's settings; without `warm_up` only the measuring passes run.
        max_tokens: the tokens of the largest pass, padding included, unless memory or time allow only fewer.

    Raises:
        Exception: memory ran out for a single text of the model's length, or the model failed.
    """
    tokens = max(max_tokens, loaded.limit)
    while True:
        try:
            return _measured(loaded, options, tokens)
        except Exception as error:
            if tokens == loaded.limit or not is_out_of_memory(error):
                raise
        # After the `except` block, because the error's traceback keeps the tensors alive for which memory ran out.
        loaded.forward.free_memory()
        logger.warning("memory ran out in a pass of %d tokens before READY; passes will be half as large", tokens)
        tokens = max(loaded.limit, tokens // 2)


def _measured(loaded: Loaded, options: Options, tokens: int) -> Measured:
    want = Want.MEAN if options.task == "feature-extraction" else Want.LOGITS
    sample = loaded.samples[-1]

    def run(shape: tuple[int, int]) -> float:
        return run_shape(loaded.forward, sample, shape, want)

    shapes = list(_shapes_to_run(loaded, options, tokens)) if options.warm_up else []
    for shape in shapes:
        run(shape)
    cost = options.pass_cost_tokens
    if loaded.device.type == "cuda":
        speed = measure_speed(run, loaded.limit, tokens, options.max_batch_sequences)
        cost = round(speed.floor_s / speed.token_s) if cost is None else cost
        if options.max_batch_tokens is None:
            tokens = max(loaded.limit, min(tokens, int(_LONGEST_PASS_S / speed.token_s)))
        largest = (max(1, min(options.max_batch_sequences, tokens // loaded.limit)), loaded.limit)
    else:
        cost = max(_LEAST_PASS_COST, measure_pass_cost(run, loaded.limit)) if cost is None else cost
        largest = shapes[0] if shapes else (1, loaded.limit)
    # Run the largest shape again: the first pass of a shape also reserves memory, chooses kernels and compiles.
    seconds = run(largest)
    # On a CPU the largest batch is not run, since that would take seconds; its time is extrapolated.
    seconds *= max(1.0, tokens / (largest[0] * largest[1]))
    compiled = frozenset((sequences > 1, length) for sequences, length in [*shapes, largest])
    return Measured(tokens, cost, pass_timeout(options.pass_timeout_s, seconds), compiled)


def pass_timeout(wanted_s: float, largest_s: float) -> float:
    """Return a pass's time limit in seconds: `wanted_s`, or three times the largest pass's time if that is more."""
    least_s = _TIMES_THE_LARGEST * largest_s
    if least_s <= wanted_s:
        return wanted_s
    logger.warning(
        "pass_timeout_s: %g is raised to %.1f, three times the largest pass of this model here", wanted_s, least_s
    )
    return least_s


def _shapes_to_run(loaded: Loaded, options: Options, max_tokens: int) -> Iterator[tuple[int, int]]:
    # A CPU has no memory to reserve and no clock to raise: one sequence per shape is enough, and batches take seconds.
    most = (max_tokens, options.max_batch_sequences) if loaded.device.type == "cuda" else (1, 1)
    yield from bucket_shapes(loaded.limit, *most)
    if options.compile:
        # The compiler makes one program per length for a single sequence, and another for more.
        for _, length in bucket_shapes(loaded.limit, 1, 1):
            yield from ((1, length), (2, length))


def bucket_shapes(limit: int, max_tokens: int, max_sequences: int) -> Iterator[tuple[int, int]]:
    """Yield the shape (sequences, tokens per sequence) of the largest batch of each length, longest first.

    Lengths double from 16 up to the limit. The longest comes first, because the shorter ones reuse its memory.
    """
    for length in reversed(lengths_up_to(limit)):
        yield max(1, min(max_sequences, max_tokens // length)), length


def run_shape(forward: Forward, sample: Encoded, shape: tuple[int, int], want: Want) -> float:
    """Run a batch of a shape (sequences, tokens), cut from a longer sample, and return the seconds that it took."""
    sequences, length = shape
    segments = None if sample.segments is None else sample.segments[:length]
    encoded = Encoded(sample.ids[:length], segments, truncated=False)
    return forward.timed([TokenSequence(encoded, length, want) for _ in range(sequences)])


@dataclass(frozen=True, slots=True)
class Speed:
    """A GPU's speed: a pass takes `token_s` seconds per token, but at least `floor_s` seconds."""

    floor_s: float
    token_s: float


def measure_speed(run: Callable[[tuple[int, int]], float], limit: int, max_tokens: int, max_sequences: int) -> Speed:
    """Measure a GPU's speed with one short pass and two large ones; `run` runs a shape and returns the seconds.

    A short pass takes as long as launching its kernels, independent of its number of tokens. So the time per token is
    computed from two passes that fill the device, the largest pass and one of half its size: the difference of their
    times, divided by the difference of their tokens.
    """
    length = min(limit, max(_LONG, max_tokens // max_sequences))
    many = max(2, max_tokens // length)
    floor_s, half_s, large_s = (_least(run, shape) for shape in ((1, _SHORT), (many // 2, length), (many, length)))
    slope = (large_s - half_s) / ((many - many // 2) * length)
    # If even these passes do not fill the device, the slope is noise: launches take longer than the tokens.
    token_s = large_s / (many * length)
    return Speed(floor_s, max(slope, token_s / _LEAST_SHARE))


def _least(run: Callable[[tuple[int, int]], float], shape: tuple[int, int]) -> float:
    """Run a shape several times and return the shortest time in seconds; short passes run more often, against noise."""
    seconds = [run(shape) for _ in range(_REPEATS)]
    while len(seconds) < _MOST_REPEATS and sum(seconds) < _STEADY_S:
        seconds.append(run(shape))
    return min(seconds)


def measure_pass_cost(run: Callable[[tuple[int, int]], float], limit: int) -> int:
    """Return the fixed cost of a pass on a CPU in tokens, from the times of a short pass and a large one."""
    long = min(_LONG, limit)
    return pass_cost(_least(run, (1, _SHORT)), _SHORT, _least(run, (_MANY, long)), _MANY * long)


def pass_cost(short_s: float, short_tokens: int, large_s: float, large_tokens: int) -> int:
    """Return a pass's fixed cost, computed from two timings, as the number of tokens that take as long."""
    per_token_s = max((large_s - short_s) / (large_tokens - short_tokens), 1e-9)
    return max(0, round(short_s / per_token_s) - short_tokens)
