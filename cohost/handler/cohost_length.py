"""A model's true limit in tokens, and the lengths below it that batches are made for."""

from __future__ import annotations

from itertools import takewhile

# Tokenizers whose configuration states no maximum have a number of 30 digits there (transformers: VERY_LARGE_INTEGER).
_ABSURD = 1_000_000

_SHORTEST = 16


def length_limit(
    *, model: str, positions: int | None, offset: int, tokenizer_maximum: int | None, wanted: int | None
) -> int:
    """The most tokens that a sequence may have, special ones included.

    `positions` is the size of the model's table of positions and `offset` how many at its start are never used: models
    of the RoBERTa kind count from behind the padding index, so 514 positions hold 512 tokens. `wanted` is the catalog's
    `max_length`, which can only lower the limit.

    Raises:
        ValueError: neither model nor tokenizer nor catalog state one.
    """
    limits = [] if positions is None else [positions - offset]
    limits += [] if tokenizer_maximum is None or tokenizer_maximum > _ABSURD else [tokenizer_maximum]
    limits += [] if wanted is None else [wanted]
    if not limits:
        raise ValueError(f"max_length: {model} and its tokenizer state no limit; set max_length")
    return min(limits)


def lengths_up_to(limit: int) -> tuple[int, ...]:
    """Lengths in tokens that double from 16, and the limit as the last."""
    return (*takewhile(lambda length: length < limit, (_SHORTEST << n for n in range(32))), limit)
