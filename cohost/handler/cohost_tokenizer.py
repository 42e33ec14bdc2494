"""The tokenizer of a model: turns texts into token ids, truncated as requested, with or without transformers.

Sequences are truncated by this module itself, by the rules of the package `tokenizers` (0.22.2, utils/truncation.rs).
The package would also return the parts that it cuts off: for a pair, one sequence for each combination of a part of the
first text and a part of the second text. One long pair would then take many seconds, and the texts of other requests
would wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers  # type: ignore[import-untyped]

from .cohost_errors import BadInputError, fault
from .cohost_request import LONGEST_FIRST, OFF, ONLY_FIRST

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from .cohost_request import Cut
    from .cohost_texts import Text

    Numbers = npt.NDArray[np.int32]


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

    `limit` is the largest number of tokens in a sequence. An index beyond the end of a table makes only one pass fail
    on a CPU. On a GPU, such an index makes every later call of the process fail, so sequences are checked before they
    reach a device.
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
    """A tokenizer of the package `tokenizers`, with those methods of a transformers tokenizer that are used here.

    A proxy process does not import transformers, which would take seconds and a hundred megabytes.
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
            maximum: the largest number of tokens by the tokenizer's configuration.
            side: the end at which long texts are cut, "right" or "left".
        """
        self._tokenizer: Any = tokenizers.Tokenizer.from_str(text)
        # The text may set both, to lengths that its author chose.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._segments = segments
        self.truncation_side = side
        self.pad_token_id = padding_id
        self.pad_token_type_id = 0
        self.model_max_length = maximum

    def __len__(self) -> int:
        """Return the size of the vocabulary, added tokens included."""
        return int(self._tokenizer.get_vocab_size())

    def token_to_id(self, token: str) -> int | None:
        """Return a token's id; None if the vocabulary lacks the token."""
        found = self._tokenizer.token_to_id(token)
        return None if found is None else int(found)

    def num_special_tokens_to_add(self, *, pair: bool) -> int:
        """Return the number of special tokens that are added to a text or a pair."""
        return int(self._tokenizer.num_special_tokens_to_add(pair))

    def __call__(self, first: Sequence[str], second: Sequence[str] | None, **_: object) -> Batch:
        """Encode texts or pairs, without truncation, in their order."""
        texts = list(first) if second is None else list(zip(first, second, strict=True))
        return Batch(self._tokenizer.encode_batch(texts), segments=self._segments)


class Tokenizer:
    """A fast tokenizer that truncates; only one thread may use it, since transformers' tokenizers have state."""

    def __init__(self, tokenizer: Any, model: str) -> None:  # transformers has no types
        """Wrap a fast tokenizer; raise ValueError for a slow one, which does not tell a pair's texts apart."""
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
        """Return the maximum of tokens that the tokenizer's configuration states, even an absurd number, or None."""
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
        batch = self._tokenizer(
            [text.first for text in texts],
            [text.second for text in texts] if paired else None,
            truncation=False,
            padding=False,
            return_attention_mask=False,
            verbose=False,
        )
        segments = batch.get("token_type_ids") or [None] * len(texts)
        encoded = [
            Encoded(_numbers(ids), None if segment is None else _numbers(segment), truncated=False)
            for ids, segment in zip(batch["input_ids"], segments, strict=True)
        ]
        if cut.strategy != OFF:
            for one, encoding in zip(encoded, batch.encodings, strict=True):
                if len(one.ids) > cut.max_length:
                    self._truncate(one, encoding.sequence_ids, cut, paired=paired)
        return encoded

    def _truncate(self, one: Encoded, texts: list[int | None], cut: Cut, *, paired: bool) -> None:
        """Truncate a sequence; `texts` states for each token the text that it is from (0 or 1), None if special."""
        room = cut.max_length - int(self._tokenizer.num_special_tokens_to_add(pair=paired))
        lengths = (texts.count(0), texts.count(1))
        # A single text is the only one to truncate, whichever text of a pair the caller chose.
        kept = _kept(lengths, room, cut.strategy if paired else LONGEST_FIRST)
        if kept is None:
            problem = f"is as long as the limit of {cut.max_length} tokens, and only the other text may be cut"
            raise BadInputError(fault(cut.second_field, problem, fix="shorten it"))
        stays = np.ones(len(texts), dtype=bool)
        for text, (length, keep) in enumerate(zip(lengths, kept, strict=True)):
            if keep < length:
                start = texts.index(text)  # no special token stands between the tokens of a text
                begin = start if self._tokenizer.truncation_side == "left" else start + keep
                stays[begin : begin + length - keep] = False
        one.ids = one.ids[stays]
        one.segments = None if one.segments is None else one.segments[stays]
        one.truncated = True


def _kept(lengths: tuple[int, int], room: int, strategy: str) -> tuple[int, int] | None:
    """Return the number of tokens that each text of a pair keeps when the pair is too long.

    Args:
        lengths: the tokens of both texts without special tokens; 0 for the second of a single text.
        room: the largest number of tokens that both texts may keep together.
        strategy: names the text to truncate.

    Returns:
        None if only one text may be truncated, and it would lose all its tokens.
    """
    first, second = lengths
    if strategy == LONGEST_FIRST:
        shorter = min(first, second, room // 2)
        # With both texts truncated, the first keeps the smaller half, unless the first is the longer one.
        return (room - shorter, shorter) if first > second else (shorter, room - shorter)
    if strategy == ONLY_FIRST:
        return (room - second, second) if room > second else None
    return (first, room - first) if room > first else None


def _numbers(values: Sequence[int]) -> Numbers:
    # Converted here, because the thread that launches passes has no time for it.
    return np.asarray(values, dtype=np.int32)


def _check_lengths(encoded: Sequence[Encoded], limit: int) -> None:
    for index, one in enumerate(encoded):
        if len(one.ids) > limit:
            fix = "shorten it, or leave parameters.truncation on"
            raise BadInputError(fault(f"inputs[{index}]", f"has {len(one.ids)} tokens", allowed=f"{limit}", fix=fix))
