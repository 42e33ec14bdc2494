"""The largest forward pass that an entry's handler runs, and the dtypes that it holds weights in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.artifacts.handlers import BATCHED

if TYPE_CHECKING:
    from cohost.catalog.models import ModelEntry
    from cohost.plan.shapes import ModelShape

BATCH_TOKENS_ON_GPU: Final = 16_384
BATCH_TOKENS_ON_CPU: Final = 5120
BATCH_SEQUENCES: Final = 64
"""What the batching handler takes where the catalog says nothing or "auto" (`docs/handlers.md`)."""


def largest_pass(entry: ModelEntry, shape: ModelShape, *, on_gpu: bool, tokens: int | None = None) -> tuple[int, int]:
    """(texts, tokens of each) of the largest pass, with texts of full length, or of `tokens`.

    The stock handler runs texts one by one unless a caller asks for batches by `parameters.batch_size`, so `batch_size`
    is the most that its callers can be expected to send. The batching handler fills a pass up to `max_batch_tokens`,
    whatever callers send, and cuts texts at `max_length`. Of all that fill a pass the longest texts need the most, for
    attention grows with the square of their length.
    """
    if entry.handler != BATCHED:
        return entry.batch_size or 1, tokens or shape.longest_input
    settings = entry.batched
    limit = settings.max_length if settings is not None else None
    length = min(tokens or shape.longest_input, limit if isinstance(limit, int) else shape.longest_input)
    budget = settings.max_batch_tokens if settings is not None else None
    if not isinstance(budget, int):
        budget = BATCH_TOKENS_ON_GPU if on_gpu else BATCH_TOKENS_ON_CPU
    most = settings.max_batch_sequences if settings is not None else None
    # A sequence cannot be split, so one of full length runs whatever the budget is.
    return max(1, min(budget // length, most or BATCH_SEQUENCES)), length


def served_dtype(entry: ModelEntry) -> str | None:
    """The dtype that the weights are served in, at most; None is the checkpoint's own.

    The batching handler serves fp32 where nothing is said, and may come back to it from "auto" or with
    `dtype_fallback`.
    """
    if entry.handler != BATCHED:
        return entry.dtype
    falls_back = entry.batched is not None and bool(entry.batched.dtype_fallback)
    return "fp32" if falls_back or entry.dtype in {None, "auto"} else entry.dtype


def loading_dtype(entry: ModelEntry) -> str | None:
    """The dtype that the weights come onto the device in: the batching handler's first answers are those of fp32."""
    return "fp32" if entry.handler == BATCHED else served_dtype(entry)
