"""Texts to token ids, cut as asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cohost_errors import BadInputError
from .cohost_request import OFF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cohost_request import Cut
    from .cohost_texts import Text

_TOO_SHORT = "too short"


@dataclass(slots=True)
class Encoded:
    """One sequence: token ids with the special ones, the segment of each where the model reads segments.

    `truncated` says that a part of the text is missing.
    """

    ids: list[int]
    segments: list[int] | None
    truncated: bool


class Tokenizer:
    """Wraps a fast tokenizer of transformers. To be used from one thread: cutting is a state of the tokenizer."""

    def __init__(self, tokenizer: Any, model: str) -> None:  # noqa: ANN401 - transformers has no types
        """Raises ValueError for a tokenizer without the fast implementation, which alone tells what it has cut."""
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"model_id: {model} has no fast tokenizer; "
                "put a tokenizer.json beside its weights, or use handler stock"
            )
        self._tokenizer = tokenizer

    @property
    def shortest(self) -> int:
        """The least sensible `max_length`: the special tokens of a pair, and one of each text."""
        return int(self._tokenizer.num_special_tokens_to_add(pair=True)) + 2

    @property
    def maximum(self) -> int | None:
        """The maximum that the tokenizer's configuration states, however absurd."""
        return getattr(self._tokenizer, "model_max_length", None)

    @property
    def padding_ids(self) -> tuple[int, int]:
        """The token id and the segment that fill up a sequence; the mask hides both."""
        token = self._tokenizer.pad_token_id
        return 0 if token is None else int(token), int(self._tokenizer.pad_token_type_id)

    def encode(self, texts: Sequence[Text], cut: Cut) -> list[Encoded]:
        """The texts as sequences, in their order.

        Raises:
            BadInputError: a text is too long and `cut` does not allow to cut it, or not where it would have to be.
        """
        result: list[Encoded | None] = [None] * len(texts)
        for paired in (False, True):
            places = [index for index, text in enumerate(texts) if (text.second is not None) is paired]
            if places:
                encoded = self._encode([texts[index] for index in places], cut, paired=paired)
                for index, one in zip(places, encoded, strict=True):
                    result[index] = one
        whole = [one for one in result if one is not None]
        if cut.strategy == OFF:
            _check_lengths(whole, cut.max_length)
        return whole

    def _encode(self, texts: Sequence[Text], cut: Cut, *, paired: bool) -> list[Encoded]:
        limits = {"truncation": False} if cut.strategy == OFF else _truncation(cut, paired=paired)
        try:
            batch = self._tokenizer(
                [text.first for text in texts],
                [text.second for text in texts] if paired else None,
                padding=False,
                return_attention_mask=False,
                verbose=False,
                **limits,
            )
        except Exception as error:
            if _TOO_SHORT not in str(error):
                raise
            raise BadInputError(
                f"{cut.second_field}: is as long as the limit of {cut.max_length} tokens, and only the other text may "
                "be cut; shorten it"
            ) from error
        segments = batch.get("token_type_ids") or [None] * len(texts)
        cuts = [bool(encoding.overflowing) for encoding in batch.encodings]
        return [Encoded(*parts) for parts in zip(batch["input_ids"], segments, cuts, strict=True)]


def _truncation(cut: Cut, *, paired: bool) -> dict[str, Any]:
    # A single text is its only one, whichever of a pair the caller would have cut.
    return {"truncation": cut.strategy if paired else "longest_first", "max_length": cut.max_length}


def _check_lengths(encoded: Sequence[Encoded], limit: int) -> None:
    for index, one in enumerate(encoded):
        if len(one.ids) > limit:
            raise BadInputError(
                f"inputs[{index}]: {len(one.ids)} tokens are over the limit of {limit}; shorten it, or leave "
                "parameters.truncation on"
            )
