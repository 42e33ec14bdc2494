"""Bodies to send: seeded, so that two runs send the same, and made before anything is measured."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cohost.exchange import MAX_BODY_BYTES
from load_tests.errors import LoadError
from load_tests.tokens import counter, find_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from load_tests.tokens import TokenCounter

LABELS = ("travel", "cooking", "politics", "weather")
"""Candidate labels of zero-shot classification."""

VARIANTS = 32
"""Different bodies for each model and batch size; more would measure the same at more memory."""

MAX_TEXTS = 256
MEDIAN_SENTENCES, SPREAD, MOST_SENTENCES = 2, 0.7, 12
_TEXTS = Path(__file__).parent / "texts"


@dataclass(frozen=True)
class Payload:
    """One body as bytes, and how many texts are in it."""

    body: bytes
    items: int


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What payloads shall be like."""

    seed: int
    pad_to_max: bool
    max_length: int | None
    texts: Path | None
    hubs: tuple[Path, ...]

    @property
    def description(self) -> str:
        """One sentence for the report."""
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
    """The payloads of one model by batch size, the tokens of its texts (least, most; None: not counted), a warning."""

    payloads: Mapping[int, tuple[Payload, ...]]
    tokens: tuple[int, int] | None
    warning: str | None


def make_book(
    name: str, task: str, model_id: str | None, revision: str | None, wanted: Wanted, batches: Sequence[int]
) -> Book:
    """The payloads of one model.

    Raises:
        LoadError: the texts cannot be read, or a body would be larger than SageMaker takes.
    """
    labels = LABELS if task == "zero-shot-classification" else ()
    tokenizer = find_tokenizer(model_id, revision, wanted.hubs)
    counted = counter(tokenizer, labels, wanted.max_length)
    texts = _texts(name, wanted, counted, min(MAX_TEXTS, VARIANTS * max(batches)))
    lengths = [counted.count(text) for text in texts] if counted.exact else None
    return Book(
        payloads={batch: _payloads(name, task, texts, batch) for batch in batches},
        tokens=(min(lengths), max(lengths)) if lengths else None,
        warning=None if counted.exact or not wanted.pad_to_max else _approximate(name, counted, wanted),
    )


def _texts(name: str, wanted: Wanted, counted: TokenCounter, number: int) -> list[str]:
    if wanted.texts:
        return _read_lines(wanted.texts)
    # The model's name is part of the seed, so that adding a model changes no other's texts.
    rng = random.Random(f"{wanted.seed} {name}")  # noqa: S311 - reproducible on purpose
    sentences = _endless(rng)
    if wanted.pad_to_max:
        return counted.texts(sentences, min(number, VARIANTS))
    return [counted.fit(" ".join(itertools.islice(sentences, _sentence_count(rng)))) for _ in range(number)]


def _sentence_count(rng: random.Random) -> int:
    return min(MOST_SENTENCES, max(1, round(rng.lognormvariate(0, SPREAD) * MEDIAN_SENTENCES)))


def _endless(rng: random.Random) -> Iterator[str]:
    """Sentences without an end; neighbours are of one language more often than not, as in real text."""
    languages = list(_corpus().values())
    while True:
        language = rng.choice(languages)
        yield from rng.sample(language, k=min(3, len(language)))


def _payloads(name: str, task: str, texts: Sequence[str], batch: int) -> tuple[Payload, ...]:
    endless = itertools.cycle(texts)
    made = [_payload(task, list(itertools.islice(endless, batch))) for _ in range(VARIANTS)]
    if (largest := max(len(payload.body) for payload in made)) > MAX_BODY_BYTES:
        msg = (
            f"model {name!r}: {batch} texts make a body of {largest} bytes; allowed: {MAX_BODY_BYTES} bytes; "
            "fix: lower --batch-size or leave this value out of --sweep-batch"
        )
        raise LoadError(msg)
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
        msg = f"--texts {str(file)!r}: cannot be read ({error}); allowed: a UTF-8 file; fix: name one that exists"
        raise LoadError(msg) from error
    if not lines:
        raise LoadError(f"--texts {str(file)!r}: holds no text; allowed: one text a line; fix: add at least one line")
    return lines


def _approximate(name: str, counted: TokenCounter, wanted: Wanted) -> str:
    places = ", ".join(map(str, wanted.hubs)) or "no --hub given"
    return (
        f"model {name!r}: its tokenizer was not found ({places}; Hugging Face cache), so its texts are shorter than "
        f"{counted.max_length} tokens; fix: put tokenizer.json, tokenizer_config.json and config.json into ORG/NAME of "
        "a folder, and name the folder with --hub"
    )
