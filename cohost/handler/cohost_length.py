"""A model's true limit in tokens."""

from __future__ import annotations

# Tokenizers whose configuration states no maximum have a number of 30 digits there (transformers: VERY_LARGE_INTEGER).
_ABSURD = 1_000_000


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
