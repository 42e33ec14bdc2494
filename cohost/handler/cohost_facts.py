"""The facts of a loaded model that its proxy process needs: limits, labels, tokenizer; torch is not imported here.

When the engine process has loaded the model, it sends the facts as JSON, and the tokenizer as a separate text.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .cohost_classification import TextClassification
from .cohost_features import FeatureExtraction
from .cohost_request import LengthRule
from .cohost_tokenizer import PlainTokenizer, Tables, Tokenizer
from .cohost_zero_shot import ZeroShotClassification

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .cohost_options import Options
    from .cohost_request import Cut
    from .cohost_tasks import Task
    from .cohost_texts import Text
    from .cohost_tokenizer import Encoded


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The facts of a loaded model.

    `limit` is the largest number of tokens in a sequence, `shortest` the smallest sensible value of a request's
    `max_length`. `rows` and `segment_rows` are the numbers of rows in the embedding tables of tokens and of segments.
    `dtype` and `device` are shown in the answer that reports the model's counters. `segments`, `padding` (token id and
    segment) and `side` describe the tokenizer, together with the separate text. `plain` is False if only transformers
    runs the tokenizer as the model's authors meant it; then only the engine process can tokenise.
    """

    limit: int
    shortest: int
    rows: int | None
    segment_rows: int | None
    labels: Sequence[str]
    label2id: Mapping[str, int]
    problem_type: str | None
    dtype: str
    device: str
    padding: tuple[int, int]
    segments: bool
    side: str
    plain: bool

    @property
    def tables(self) -> Tables:
        """Return the sizes of the embedding tables, against which token ids and segments are checked."""
        return Tables(rows=self.rows, segment_rows=self.segment_rows, limit=self.limit)

    @property
    def shown(self) -> dict[str, str]:
        """Return the number format and the device, for the answer that reports the counters."""
        return {"dtype": self.dtype, "device": self.device}

    def as_data(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Facts:
        """Return the `Facts` that `as_data` turned into JSON values."""
        return cls(**{**data, "padding": tuple(data["padding"])})


def task_of(facts: Facts, options: Options) -> Task:
    """Return the task that reads calls and writes answers.

    Raises:
        ValueError: the model lacks a label that the task needs.
    """
    rule = LengthRule(facts.limit, facts.shortest, options.truncation)
    if options.task == "feature-extraction":
        return FeatureExtraction(options=options, rule=rule)
    if options.task == "zero-shot-classification":
        return ZeroShotClassification(label2id=facts.label2id, model=options.model, options=options, rule=rule)
    return TextClassification(labels=facts.labels, problem_type=facts.problem_type, options=options, rule=rule)


def tokenizer_of(facts: Facts, text: str, model: str) -> Tokenizer:
    """Return the tokenizer that the facts and `text`, the content of a tokenizer.json, describe."""
    plain = PlainTokenizer(text, segments=facts.segments, padding_id=facts.padding[0], side=facts.side)
    plain.pad_token_type_id = facts.padding[1]
    return Tokenizer(plain, model)


def checked(tokenizer: Tokenizer, tables: Tables, texts: Sequence[Text], cut: Cut) -> list[Encoded]:
    """Return texts as sequences, checked against `tables`; with a tokenizer of transformers, from one thread only.

    Raises:
        BadInputError: a text is too long and may not be truncated, or needs a vector that the model lacks.
    """
    encoded = tokenizer.encode(texts, cut)
    for index, one in enumerate(encoded):
        tables.check(f"inputs[{index}]", one)
    return encoded
