"""The facts of a loaded model that its proxy process needs: limits, labels, tokenizer. No module of torch is imported.

The engine process states the facts as JSON when it has loaded the model, with the tokenizer as text beside them.
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

    `limit` is the most tokens of a sequence, `shortest` the least sensible `max_length`; `rows` and `segment_rows` are
    the sizes of the embedding tables. `dtype` and `device` are shown with the counters. `segments`, `padding` (token id
    and segment), `side` and the text beside the facts describe the tokenizer. `plain` is False for a tokenizer that
    only transformers, and so only the engine process, can run as the model's authors meant it.
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
        """Return the sizes that sequences are checked against."""
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
        """Return the facts that `as_data` returned."""
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
    """Return texts as sequences, checked against the model's tables; one thread only for a tokenizer of transformers.

    Raises:
        BadInputError: a text is too long and may not be truncated, or needs a vector that the model lacks.
    """
    encoded = tokenizer.encode(texts, cut)
    for index, one in enumerate(encoded):
        tables.check(f"inputs[{index}]", one)
    return encoded
