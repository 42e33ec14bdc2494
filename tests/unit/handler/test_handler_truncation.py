"""Truncation keeps the tokens that the package tokenizers keeps, without the sequences that it makes of the rest."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tokenizers  # type: ignore[import-untyped]
import transformers
from handler_calls import HUB, MINILM
from hypothesis import given
from hypothesis import strategies as st
from test_handler_equality import LIMIT, WORDS
from tokenizers import models, pre_tokenizers, processors

from cohost.handler.cohost_errors import BadInputError
from cohost.handler.cohost_request import LONGEST_FIRST, OFF, ONLY_FIRST, ONLY_SECOND, Cut
from cohost.handler.cohost_texts import Text
from cohost.handler.cohost_tokenizer import PlainTokenizer, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    Sequences = list[tuple[list[int], list[int] | None, bool]]

SIDES = ["right", "left"]
STRATEGIES = [LONGEST_FIRST, ONLY_FIRST, ONLY_SECOND]
TINY = sorted(path.name for path in HUB.iterdir() if (path / "config.json").exists())
TEXTS = st.lists(st.sampled_from([*WORDS, "[SEP]", "</s>", "unbelievable"]), max_size=40).map(" ".join)
PAIRS = st.lists(st.builds(Text, TEXTS, TEXTS), min_size=1, max_size=3)
SINGLES = st.lists(st.builds(Text, TEXTS), min_size=1, max_size=3)
WORDS_OF_A_LONG_TEXT = 20_000
# The package tokenizers raises plain exceptions. This is in the text of the one for a text that cannot be truncated.
TOO_SHORT = "too short"


@cache
def transformers_tokenizer(model: str, side: str) -> Any:
    """Return transformers' own tokenizer."""
    raw = transformers.AutoTokenizer.from_pretrained(str(HUB / model))
    raw.truncation_side = side
    return raw


@cache
def plain(model: str, side: str) -> PlainTokenizer:
    """Return the tokenizer of a proxy process and of the ONNX handler."""
    text = (HUB / model / "tokenizer.json").read_text()
    segments = "token_type_ids" in transformers_tokenizer(model, side).model_input_names
    return PlainTokenizer(text, segments=segments, padding_id=0, side=side)


def result(tokenizer: Tokenizer, texts: list[Text], cut: Cut) -> Sequences | str:
    """Return ids, segments and the marks of truncated texts; of a refusal the field."""
    try:
        encoded = tokenizer.encode(texts, cut)
    except BadInputError as error:
        return str(error).partition(":")[0]
    return [
        (one.ids.tolist(), None if one.segments is None else one.segments.tolist(), one.truncated) for one in encoded
    ]


def wanted(raw: Any, texts: list[Text], cut: Cut) -> Sequences | str:
    """Return the result of transformers' own truncation, in the form of `result`."""
    first, second = [text.first for text in texts], [text.second for text in texts]
    try:
        batch = raw(
            first,
            None if second[0] is None else second,
            truncation=LONGEST_FIRST if second[0] is None else cut.strategy,
            max_length=cut.max_length,
        )
    except Exception as error:
        if TOO_SHORT not in str(error):
            raise
        return cut.second_field
    segments = batch.get("token_type_ids") or [None] * len(texts)
    cuts = [bool(encoding.overflowing) for encoding in batch.encodings]
    return list(zip(batch["input_ids"], segments, cuts, strict=True))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("model", TINY)
@given(texts=PAIRS | SINGLES, strategy=st.sampled_from(STRATEGIES), data=st.data())
def test_texts_are_truncated_as_by_transformers(
    model: str, side: str, texts: list[Text], strategy: str, data: st.DataObject
) -> None:
    """With both kinds of tokenizers: the same tokens, segments, marks of truncated texts, and refusals."""
    raw = transformers_tokenizer(model, side)
    ours = [Tokenizer(raw, model), Tokenizer(plain(model, side), model)]
    longest = max(len(one.ids) for one in ours[0].encode(texts, Cut(OFF, 10**9)))
    length = data.draw(st.integers(ours[0].shortest, max(longest, ours[0].shortest)) | st.just(LIMIT))
    cut = Cut(strategy, length)
    right = wanted(raw, texts, cut)
    for tokenizer in ours:
        assert result(tokenizer, texts, cut) == right


def template(pair: str) -> Any:
    """Return a post-processor that puts special tokens around texts by a template."""
    special = [("[CLS]", 1), ("[SEP]", 2)]
    return processors.TemplateProcessing(single="[CLS] $A [SEP]", pair=pair, special_tokens=special)


POST_PROCESSORS = {
    "none": None,
    "bert": processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)),
    "roberta": processors.RobertaProcessing(("[SEP]", 2), ("[CLS]", 1)),
    "template": processors.Sequence([processors.ByteLevel(), template("[CLS] $A [SEP] $B:1 [SEP]:1")]),
    "second text first": template("[CLS] $B:1 [SEP]:1 $A [SEP]"),
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", POST_PROCESSORS)
def test_every_division_of_the_room_equals_the_packages(name: str, side: str) -> None:
    """All small lengths of two texts, all strategies, and each way to add special tokens."""
    words = [*"abcdefg"]
    vocabulary = {word: index for index, word in enumerate(["[UNK]", "[CLS]", "[SEP]", *words, *map(str.upper, words)])}
    package = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    package.pre_tokenizer = pre_tokenizers.Whitespace()
    if POST_PROCESSORS[name] is not None:
        package.post_processor = POST_PROCESSORS[name]
    ours = Tokenizer(PlainTokenizer(package.to_str(), segments=True, padding_id=0, side=side), name)
    refusals = 0
    for first, second, strategy, room in product(range(8), range(8), STRATEGIES, range(2, 10)):
        length = ours.shortest - 2 + room
        texts = Text(" ".join(words[:first]), " ".join(words[:second]).upper())
        package.enable_truncation(length, strategy=strategy, direction=side)
        try:
            encoding = package.encode(texts.first, texts.second)
        except Exception as error:
            if TOO_SHORT not in str(error):
                raise
            refusals += 1
            right: Sequences | str = "text_pair"
        else:
            right = [(encoding.ids, encoding.type_ids, bool(encoding.overflowing))]
        assert result(ours, [texts], Cut(strategy, length)) == right
    assert refusals


class Recorded:
    """A tokenizer that remembers the encodings that it returned."""

    is_fast = True

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.encodings: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        """All else is the tokenizer's."""
        return getattr(self._tokenizer, name)

    def __call__(self, *texts: Any, **options: Any) -> Any:
        """Encode texts."""
        batch = self._tokenizer(*texts, **options)
        self.encodings += batch.encodings
        return batch


@pytest.mark.parametrize("kind", [transformers_tokenizer, plain])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_rest_of_a_long_pair_becomes_no_sequences(strategy: str, kind: Callable[[str, str], Any]) -> None:
    """The package would make thousands of sequences of the removed tokens; one encoding of each text's tokens is made.

    A short text stands beside the long one where only one may be truncated.
    """
    long = " ".join(["movie"] * WORDS_OF_A_LONG_TEXT)
    text = Text(long if strategy != ONLY_SECOND else "great", long if strategy != ONLY_FIRST else "great")
    recorded = Recorded(kind(Path(MINILM).name, "right"))
    (one,) = Tokenizer(recorded, MINILM).encode([text], Cut(strategy, LIMIT))
    assert (len(one.ids), one.truncated) == (LIMIT, True)
    assert [len(encoding.overflowing) for encoding in recorded.encodings] == [0]
    tokens = len(recorded.encodings[0].ids)
    assert tokens <= 2 * WORDS_OF_A_LONG_TEXT + Tokenizer(recorded, MINILM).shortest
    assert tokens > WORDS_OF_A_LONG_TEXT


def test_the_truncation_of_a_tokenizers_file_is_not_used() -> None:
    """A tokenizer.json may state a length; the request's length counts, and the file's is removed."""
    package = tokenizers.Tokenizer.from_file(str(Path(MINILM, "tokenizer.json")))
    package.enable_truncation(6)
    tokenizer = Tokenizer(PlainTokenizer(package.to_str(), segments=True, padding_id=0), MINILM)
    (one,) = tokenizer.encode([Text("the movie was great and good")], Cut(LONGEST_FIRST, LIMIT))
    assert (len(one.ids) > 6, one.truncated) == (True, False)
