"""A tokenizer.json with the interface of a fast tokenizer of transformers, as far as `cohost_tokenizer` uses it.

So the texts of requests are cut by the same rules with and without transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Sequence

_PAD = "[PAD]"
_ROBERTA_PAD = "<pad>"


class Batch(dict[str, Any]):
    """Token ids and segments by name, with the tokenizer's encodings."""

    def __init__(self, encodings: Sequence[Any], *, segments: bool) -> None:
        super().__init__(input_ids=[encoding.ids for encoding in encodings])
        if segments:
            self["token_type_ids"] = [encoding.type_ids for encoding in encodings]
        self.encodings = encodings


class FastTokenizer:
    """The tokenizer in a folder's tokenizer.json and tokenizer_config.json; `segments` if the model reads these."""

    is_fast = True
    pad_token_type_id = 0

    def __init__(self, folder: str, *, segments: bool) -> None:
        self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        # The file may set both, to lengths that its author chose.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._segments = segments
        config = json.loads(Path(folder, "tokenizer_config.json").read_bytes())
        self.model_max_length = int(config.get("model_max_length", 0)) or None
        self.pad_token_id = self._pad_id(config.get("pad_token"))

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
            self._tokenizer.enable_truncation(max_length, strategy=truncation)
        else:
            self._tokenizer.no_truncation()
        texts = list(first) if second is None else list(zip(first, second, strict=True))
        return Batch(self._tokenizer.encode_batch(texts), segments=self._segments)

    def _pad_id(self, token: object) -> int | None:
        """Return the id of the padding token, which a configuration states as text or as an object with a text."""
        text = token.get("content") if isinstance(token, dict) else token
        for candidate in (text, _PAD, _ROBERTA_PAD):
            if isinstance(candidate, str) and (found := self._tokenizer.token_to_id(candidate)) is not None:
                return int(found)
        return None
