"""Is a number format good enough for a model? Fixed texts are compared with what fp32 gives on the same device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .cohost_parameters import LONGEST_FIRST, Cut
from .cohost_texts import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cohost_tasks import Floats
    from .cohost_tokenizer import Encoded, Tokenizer

_TEXTS = (
    Text("Good."),
    Text("The train was two hours late, and nobody told us why."),
    Text("배송이 빨라서 아주 만족합니다.", "상품이 늦게 도착했다."),
    Text("这家餐厅的菜很好吃,但是服务太慢了。"),
    Text("كانت الرحلة طويلة لكنها ممتعة.", "كانت الرحلة قصيرة."),
    Text("Отличный телефон, батареи хватает на два дня 🎉", "The battery is good."),
)
_LEAST_COSINE = 0.99


def check_sequences(tokenizer: Tokenizer, limit: int) -> list[Encoded]:
    """The fixed texts, and all of them over and over up to the model's limit."""
    whole = " ".join(text.first for text in _TEXTS)
    # A word is a token at least, as the limit counts them.
    full = Text(" ".join([whole] * (limit // len(whole.split()) + 1)))
    return tokenizer.encode([*_TEXTS, full], Cut(LONGEST_FIRST, limit))


def disagreement(reference: Sequence[Floats], candidate: Sequence[Floats], *, labels: bool) -> str | None:
    """What is wrong with a format's outputs, or None: a number that is not finite, another label, another direction.

    With `labels`, an output is the logits of a text, else its vector.
    """
    for number, (expected, got) in enumerate(zip(reference, candidate, strict=True)):
        if not np.isfinite(got).all():
            return f"check text {number} gives a number that is not finite"
        if labels and len(expected) > 1 and expected.argmax() != got.argmax():
            return f"check text {number} gets another label than in fp32"
        if not labels and (cosine := _cosine(expected, got)) < _LEAST_COSINE:
            return f"check text {number} gives a vector of cosine {cosine:.3f} to that of fp32"
    return None


def largest_difference(reference: Sequence[Floats], candidate: Sequence[Floats]) -> float:
    """The largest difference of two numbers in the same place."""
    return max(float(np.abs(expected - got).max()) for expected, got in zip(reference, candidate, strict=True))


def _cosine(first: Floats, second: Floats) -> float:
    return float(first @ second / max(float(np.linalg.norm(first) * np.linalg.norm(second)), 1e-12))
