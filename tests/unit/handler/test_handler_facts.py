"""The facts of a model in a proxy process survive JSON, and the tokenizer there gives the same sequences."""

from __future__ import annotations

import asyncio
import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
import transformers
from handler_calls import EMBED, HUB, LONG, MINILM, InProcess, properties, served
from test_handler_equality import LIMIT, text
from tokenizers.pre_tokenizers import PreTokenizer  # type: ignore[import-untyped]

from cohost.handler import cohost_loading
from cohost.handler.cohost_facts import Facts, task_of, tokenizer_of
from cohost.handler.cohost_loading import load, plain_text
from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_request import LONGEST_FIRST, OFF, ONLY_FIRST, ONLY_SECOND, Cut
from cohost.handler.cohost_texts import Text
from cohost.handler.cohost_tokenizer import Tokenizer

if TYPE_CHECKING:
    from handler_calls import Caller, Reply

TASKS = {"tiny-embed": "feature-extraction"}
MODELS = sorted(path.name for path in HUB.iterdir() if (path / "config.json").exists())
GREAT = "the movie was great"


def facts_of(model: str, **others: Any) -> Facts:
    """The facts of a model's tokenizer, without its weights."""
    raw = transformers.AutoTokenizer.from_pretrained(model)
    tokenizer = Tokenizer(raw, model)
    given: dict[str, Any] = {
        "limit": LIMIT,
        "shortest": tokenizer.shortest,
        "rows": 2000,
        "segment_rows": None,
        "labels": ["a", "entailment"],
        "label2id": {"a": 0, "entailment": 1},
        "problem_type": None,
        "dtype": "fp32",
        "device": "cpu",
        "padding": tokenizer.padding_ids,
        "segments": "token_type_ids" in raw.model_input_names,
        "side": raw.truncation_side,
        "plain": True,
    }
    return Facts(**given | others)


@pytest.mark.parametrize("model", MODELS)
def test_facts_survive_the_way_to_the_proxy(model: str) -> None:
    """A loaded model's facts go over the socket as JSON, and are equal on the other side."""
    facts = load(read_options(properties(str(HUB / model), TASKS.get(model, "text-classification")))).facts
    assert facts.plain
    assert Facts.of(json.loads(json.dumps(facts.as_data()))) == facts


@pytest.mark.parametrize(("rows", "segment_rows"), [(None, None), (7, 2)])
def test_facts_that_a_model_lacks_survive_too(rows: int | None, segment_rows: int | None) -> None:
    """None stays None, and labels keep their order."""
    facts = facts_of(MINILM, rows=rows, segment_rows=segment_rows, problem_type="multi_label_classification")
    again = Facts.of(json.loads(json.dumps(facts.as_data())))
    assert again == facts
    assert (again.tables.rows, again.tables.segment_rows, again.tables.limit) == (rows, segment_rows, LIMIT)


@pytest.mark.parametrize("task", ["text-classification", "zero-shot-classification", "feature-extraction"])
def test_a_task_is_made_of_facts_alone(task: str) -> None:
    """Without a model: labels, limits and options are all that it reads."""
    plan = task_of(facts_of(MINILM), read_options(properties(MINILM, task))).plan
    assert callable(plan)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("model", MODELS)
def test_the_proxys_tokenizer_gives_what_transformers_gives(model: str, side: str) -> None:
    """Random texts and pairs in many scripts, cut in all ways: the same tokens, segments and cuts."""
    raw = transformers.AutoTokenizer.from_pretrained(str(HUB / model))
    raw.truncation_side = side
    theirs, facts = Tokenizer(raw, model), facts_of(str(HUB / model), side=side)
    found = plain_text(raw, theirs, facts)
    assert found is not None
    ours = tokenizer_of(facts, found, model)
    rng = random.Random(model)  # noqa: S311 - reproducible
    texts = [Text(text(rng)) for _ in range(20)] + [Text(text(rng), text(rng)) for _ in range(20)]
    texts += [Text(""), Text(" "), Text("", ""), Text("[SEP] </s> <mask> [MASK]"), Text("a\u0000b\u200d\ufeff")]
    singles = [one for one in texts if one.second is None]
    cuts = [(Cut(LONGEST_FIRST, length), texts) for length in (60, LIMIT)]
    cuts += [
        (Cut(LONGEST_FIRST, facts.shortest), singles),
        (Cut(ONLY_FIRST, 9), singles),
        (Cut(ONLY_SECOND, 9), singles),
        (Cut(OFF, 10**9), texts),
    ]
    cuts.append((Cut(LONGEST_FIRST, 100), texts[::-1]))
    for cut, some in cuts:
        for one, other in zip(ours.encode(some, cut), theirs.encode(some, cut), strict=True):
            assert one.ids.tolist() == other.ids.tolist()
            assert one.truncated == other.truncated
            assert (one.segments is None) == (other.segments is None)
            assert one.segments is None or one.segments.tolist() == other.segments.tolist()  # type: ignore[union-attr]
    assert (ours.size, ours.shortest, ours.padding_ids) == (theirs.size, theirs.shortest, theirs.padding_ids)


class Changing:
    """A tokenizer whose Python part changes texts before the part in Rust sees them."""

    is_fast = True

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        """All else is the tokenizer's."""
        return getattr(self._raw, name)

    def __call__(self, first: list[str], second: list[str] | None, **given: Any) -> Any:
        """Digits are written as words."""
        return self._raw([re.sub(r"o", "0", text) for text in first], second, **given)


class Blanks:
    """A part of a tokenizer that is written in Python."""

    def pre_tokenize(self, text: Any) -> None:
        """Split at blanks."""
        text.split(lambda _, part: part.split(" "))


def test_a_tokenizer_that_transformers_changes_stays_in_the_engine_process() -> None:
    """Its JSON says nothing of the change, so the proxy would make other tokens."""
    raw = transformers.AutoTokenizer.from_pretrained(MINILM)
    assert plain_text(raw, Tokenizer(raw, MINILM), facts_of(MINILM)) is not None
    changing = Changing(raw)
    assert plain_text(changing, Tokenizer(changing, MINILM), facts_of(MINILM)) is None


def test_a_tokenizer_with_a_part_in_python_stays_in_the_engine_process() -> None:
    """It has no JSON."""
    raw = transformers.AutoTokenizer.from_pretrained(MINILM)
    raw.backend_tokenizer.pre_tokenizer = PreTokenizer.custom(Blanks())
    assert plain_text(raw, Tokenizer(raw, MINILM), facts_of(MINILM)) is None


def test_facts_of_another_cut_are_no_plain_tokenizer() -> None:
    """A check text that is cut at the other end would answer for another text."""
    raw = transformers.AutoTokenizer.from_pretrained(MINILM)
    assert plain_text(raw, Tokenizer(raw, MINILM), facts_of(MINILM, side="left")) is None


@pytest.mark.parametrize(("model", "task"), [(MINILM, "text-classification"), (EMBED, "feature-extraction")])
def test_a_model_whose_tokenizer_stays_behind_answers_the_same(
    monkeypatch: pytest.MonkeyPatch, model: str, task: str
) -> None:
    """Its texts go to the engine process as texts; cuts, refusals and answers are the same."""
    bodies: list[Any] = [{"inputs": GREAT}, {"inputs": ["a", LONG]}, {"inputs": {"text": "a", "text_pair": GREAT}}]
    bodies.append({"inputs": LONG, "parameters": {"truncation": False}})

    async def scenario(call: Caller) -> list[Reply]:
        return await asyncio.gather(*map(call, bodies))

    plain, remote = InProcess(), InProcess()
    wanted: list[Reply] = served(properties(model, task), scenario, plain)
    monkeypatch.setattr(cohost_loading, "plain_text", lambda *_: None)
    got: list[Reply] = served(properties(model, task), scenario, remote)
    # A pair that the task does not know is refused before its texts are sent.
    assert (plain.encoded, remote.encoded) == (0, 4 if task == "text-classification" else 3)
    assert [(one.status, one.body, one.headers) for one in got] == [
        (one.status, one.body, one.headers) for one in wanted
    ]
    assert [one.status for one in got] == [200, 200, 200 if task == "text-classification" else 400, 400]
    assert got[1].headers["cohost-truncated"] == "1"
