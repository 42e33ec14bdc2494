"""Token ids and positions outside a model's tables are found before the device, which would be lost by them."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from handler_calls import MINILM, properties, served
from safetensors.torch import load_file, save_file

from cohost.handler.cohost_errors import BadInputError
from cohost.handler.cohost_loading import load
from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_tokenizer import Encoded, Tables

if TYPE_CHECKING:
    from pathlib import Path

    from handler_calls import Caller, Reply

WORD_OF_THE_LAST_ID = "zoshakasha"


def cut_model(folder: Path, **rows: int) -> str:
    """A copy of the model with fewer rows: `vocab_size` of token vectors, `type_vocab_size` of segments."""
    model = shutil.copytree(MINILM, folder / "model")
    tables = {"vocab_size": "word_embeddings", "type_vocab_size": "token_type_embeddings"}
    weights, config = load_file(model / "model.safetensors"), json.loads((model / "config.json").read_text())
    for key, count in rows.items():
        name = next(name for name in weights if name.endswith(f"{tables[key]}.weight"))
        weights[name] = weights[name][:count].clone()
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    (model / "config.json").write_text(json.dumps(config | rows))
    return str(model)


def together(model: str, *inputs: Any) -> tuple[list[Reply], dict[str, Any]]:
    """Return the answers to simultaneous requests, and the texts that the device computed."""

    async def scenario(call: Caller) -> tuple[list[Reply], dict[str, Any]]:
        answers = await asyncio.gather(*(call({"inputs": item}) for item in inputs))
        return answers, await call.counters()

    result: tuple[list[Reply], dict[str, Any]] = served(properties(model), scenario)
    return result


def test_a_token_id_without_a_vector_is_refused_before_the_device_sees_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A token id outside the embedding table is rejected before the pass, because a GPU would be lost by it."""
    model = cut_model(tmp_path, vocab_size=1990)
    answers, counters = together(model, "the movie", ["fine", WORD_OF_THE_LAST_ID], "great")
    assert [answer.status for answer in answers] == [200, 400, 200]
    assert answers[1].body["error"].startswith("inputs[1]: holds the token id 1999, for which the model has no vector;")
    assert counters["sequences"] == 2
    assert "the tokenizer has 2000 tokens, and the model vectors for 1990" in caplog.text


def test_a_pair_for_a_model_of_single_texts_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A pair is rejected for a model whose table has one segment, and single texts are served."""
    answers, counters = together(cut_model(tmp_path, type_vocab_size=1), {"text": "a", "text_pair": "b"}, "a")
    assert [answer.status for answer in answers] == [400, 200]
    assert answers[0].body["error"].startswith("inputs[0]: is a pair, and the model knows single texts only;")
    assert counters["sequences"] == 1
    assert "pairs get 400" in caplog.text


def test_a_tokenizer_of_another_model_fails_the_load(tmp_path: Path) -> None:
    """A tokenizer with ids outside the embedding table fails the load."""
    with pytest.raises(ValueError, match=r"^model_id: .* an ordinary text: holds the token id"):
        load(read_options(properties(cut_model(tmp_path, vocab_size=900))))


def test_lengths_are_held_against_the_model_whatever_the_tokenizer_made() -> None:
    """A position outside the table is rejected, whatever the tokenizer's limit is."""
    tables = Tables(rows=10, segment_rows=None, limit=4)
    tables.check("inputs", Encoded(np.full(4, 9, np.int32), np.ones(4, np.int32), truncated=False))
    with pytest.raises(BadInputError, match="inputs: has 5 tokens; allowed: 4 tokens"):
        tables.check("inputs", Encoded(np.ones(5, np.int32), None, truncated=False))


def test_the_tables_are_those_of_the_weights() -> None:
    """As many rows as the model has, whatever kind of model it is."""
    assert load(read_options(properties(MINILM))).facts.tables == Tables(rows=2000, segment_rows=2, limit=512)
