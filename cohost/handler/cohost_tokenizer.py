"""The tokenizer of a model: from texts to token ids, truncated as requested; with and without transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers  # type: ignore[import-untyped]

from .cohost_errors import BadInputError, fault
from .cohost_request import OFF

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from .cohost_request import Cut
    from .cohost_texts import Text

    Numbers = npt.NDArray[np.int32]

_TOO_SHORT = "too short"


@dataclass(slots=True)
class Encoded:
    """A tokenized sequence: token ids including special tokens, and their segments if the model reads segments.

    `truncated` is true if a part of the text is missing.
    """

    ids: Numbers
    segments: Numbers | None
    truncated: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Tables:
    """The sizes of a model's embedding tables: rows for token ids and for segments, None for a table that it lacks.

    `limit` is the most tokens of a sequence. An index beyond a table makes only one pass fail on a CPU, but loses the
    device on a GPU, so sequences are checked before they reach a device.
    """

    rows: int | None
    segment_rows: int | None
    limit: int

    def check(self, field: str, one: Encoded) -> None:
        """Check a sequence against the tables.

        Raises:
            BadInputError: the sequence is too long, or an index is beyond a table; the error names the field.
        """
        if len(one.ids) > self.limit:
            problem = f"has {len(one.ids)} tokens"
            raise BadInputError(fault(field, problem, allowed=f"{self.limit} tokens", fix="shorten it"))
        if self.rows is not None and (largest := int(np.max(one.ids, initial=0))) >= self.rows:
            problem, fix = f"holds the token id {largest}, for which the model has no vector", "leave that token out"
            raise BadInputError(fault(field, problem, allowed=f"ids under {self.rows}", fix=fix))
        if self.lacks_segments(one):
            problem = "is a pair, and the model knows single texts only"
            raise BadInputError(fault(field, problem, allowed="one text", fix="leave text_pair out"))

    def lacks_segments(self, one: Encoded) -> bool:
        """Return True if a sequence is a pair, and the model has no vector for the second text's segment."""
        if self.segment_rows is None or one.segments is None:
            return False
        return bool(np.max(one.segments, initial=0) >= self.segment_rows)


class Batch(dict[str, Any]):
    """Token ids and segments by name, with the tokenizer's encodings."""

    def __init__(self, encodings: Sequence[Any], *, segments: bool) -> None:
        super().__init__(input_ids=[encoding.ids for encoding in encodings])
        if segments:
            self["token_type_ids"] = [encoding.type_ids for encoding in encodings]
        self.encodings = encodings


class PlainTokenizer:
    """A tokenizer of the package tokenizers, with the part of a transformers tokenizer's interface that is used here.

    A proxy process has no transformers, which takes seconds and a hundred megabytes to import.
    """

    is_fast = True

    def __init__(
        self, text: str, *, segments: bool, padding_id: int | None, maximum: int | None = None, side: str = "right"
    ) -> None:
        """Prepare the tokenizer that `text`, the content of a tokenizer.json, describes.

        Args:
            text: the tokenizer, as JSON.
            segments: True if the model reads segments.
            padding_id: the token id of padding; None without one.
            maximum: the most tokens by the tokenizer's configuration.
            side: the end at which long texts are cut, "right" or "left".
        """
        self._tokenizer: Any = tokenizers.Tokenizer.from_str(text)
        # The text may set both, to lengths that its author chose.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._segments = segments
        self._side = side
        self.pad_token_id = padding_id
        self.pad_token_type_id = 0
        self.model_max_length = maximum

    def __len__(self) -> int:
        """Return the number of tokens, added ones included."""
        return int(self._tokenizer.get_vocab_size())

    def token_to_id(self, token: str) -> int | None:
        """Return a token's id; None if the vocabulary lacks the token."""
        found = self._tokenizer.token_to_id(token)
        return None if found is None else int(found)

    def num_special_tokens_to_add(self, *, pair: bool) -> int:
        """Return the number of tokens that are added to a text or a pair."""
        return int(self._tokenizer.num_special_tokens_to_add(pair))

    def __call__(
        self,
        first: Sequence[str],
        second: Sequence[str] | None,
        *,
        truncation: str | bool,
        max_length: int | None = None,
        **_: object,
    ) -> Batch:
        """Encode texts or pairs, in their order.

        Raises:
            Exception: tokenizers' own, when the text that may be cut is too short to be cut as far as needed.
        """
        if isinstance(truncation, str) and max_length is not None:
            self._tokenizer.enable_truncation(max_length, strategy=truncation, direction=self._side)
        else:
            self._tokenizer.no_truncation()
        texts = list(first) if second is None else list(zip(first, second, strict=True))
        return Batch(self._tokenizer.encode_batch(texts), segments=self._segments)


class Tokenizer:
    """A fast transformers tokenizer. One thread only may use it, since truncation is a state of the tokenizer."""

    def __init__(self, tokenizer: Any, model: str) -> None:  # transformers has no types
        """Wrap a tokenizer; raise ValueError if it is not a fast one, since only fast tokenizers report truncation."""
        if not getattr(tokenizer, "is_fast", False):
            fix = "put a tokenizer.json beside its weights, or use handler stock"
            raise ValueError(fault("model_id", f"{model} has no fast tokenizer", fix=fix))
        self._tokenizer = tokenizer

    @property
    def shortest(self) -> int:
        """Return the smallest sensible `max_length` in tokens: the special tokens of a pair, and one token per text."""
        return int(self._tokenizer.num_special_tokens_to_add(pair=True)) + 2

    @property
    def maximum(self) -> int | None:
        """Return the most tokens by the tokenizer's configuration, even an absurd number; None if it states none."""
        return getattr(self._tokenizer, "model_max_length", None)

    @property
    def size(self) -> int:
        """Return the number of tokens in the vocabulary, added tokens included."""
        return len(self._tokenizer)

    @property
    def padding_ids(self) -> tuple[int, int]:
        """Return the token id and the segment of padding; the mask hides both."""
        token = self._tokenizer.pad_token_id
        return 0 if token is None else int(token), int(self._tokenizer.pad_token_type_id)

    def encode(self, texts: Sequence[Text], cut: Cut) -> list[Encoded]:
        """Return the texts as sequences, in their order.

        Raises:
            BadInputError: a text is too long, and `cut` does not allow truncating it.
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
            problem = f"is as long as the limit of {cut.max_length} tokens, and only the other text may be cut"
            raise BadInputError(fault(cut.second_field, problem, fix="shorten it")) from error
        segments = batch.get("token_type_ids") or [None] * len(texts)
        cuts = [bool(encoding.overflowing) for encoding in batch.encodings]
        return [
            Encoded(_numbers(ids), None if segment is None else _numbers(segment), truncated=cut)
            for ids, segment, cut in zip(batch["input_ids"], segments, cuts, strict=True)
        ]


def _numbers(values: Sequence[int]) -> Numbers:
    # Converted here, because the thread that launches passes has no time for it.
    return np.asarray(values, dtype=np.int32)


def _truncation(cut: Cut, *, paired: bool) -> dict[str, Any]:
    # A single text is the only one to truncate, whichever text of a pair the caller chose.
    return {"truncation": cut.strategy if paired else "longest_first", "max_length": cut.max_length}


def _check_lengths(encoded: Sequence[Encoded], limit: int) -> None:
    for index, one in enumerate(encoded):
        if len(one.ids) > limit:
            fix = "shorten it, or leave parameters.truncation on"
            raise BadInputError(fault(f"inputs[{index}]", f"has {len(one.ids)} tokens", allowed=f"{limit}", fix=fix))
