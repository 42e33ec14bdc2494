"""Request bodies and the texts in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.refusals import refused
from transformers import AutoTokenizer

from cohost.endpoint.invocation_payloads import MAX_BODY_BYTES
from load_tests import LoadError, payloads
from load_tests.payloads import HYPOTHESIS, Book, Wanted, counter, find_tokenizer, limit_of, make_book

HUB = Path(__file__).parents[3] / "local_aws" / "data" / "hub"
TINY = ("lmi-cohost/tiny-mdeberta-nli", "lmi-cohost/tiny-xlmr-nli", "lmi-cohost/tiny-minilm-nli")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def book(
    model_id: str | None = TINY[0],
    *,
    task: str = "text-classification",
    batches: tuple[int, ...] = (1,),
    **changes: Any,
) -> Book:
    """The payloads of a model of the local hub."""
    facts = {"seed": 1, "pad_to_max": False, "max_length": None, "texts": None, "hubs": (HUB,)}
    return make_book("m", task, model_id, None, Wanted(**{**facts, **changes}), batches)


def texts_of(found: Book, batch: int = 1) -> list[str]:
    """Return all texts of a book."""
    contents = [json.loads(payload.body)["inputs"] for payload in found.payloads[batch]]
    return [text for content in contents for text in ([content] if isinstance(content, str) else content)]


def test_the_same_seed_sends_the_same() -> None:
    """The same seed gives the same texts, so load tests can be compared; another seed gives others."""
    assert book().payloads == book().payloads
    assert book().payloads != book(seed=2).payloads


def test_texts_are_of_many_languages_and_lengths() -> None:
    """The default texts have several languages and lengths."""
    texts = texts_of(book())

    assert any("가" <= char <= "힣" for text in texts for char in text)
    assert any("\u0627" <= char <= "\u064a" for text in texts for char in text)
    assert max(map(len, texts)) > 4 * min(map(len, texts))


@pytest.mark.parametrize("model_id", [*TINY, MINILM])
def test_padded_texts_have_exactly_the_models_maximum(model_id: str) -> None:
    """Padded texts have exactly the model's maximum of tokens, counted by transformers."""
    folder = find_tokenizer(model_id, None, [HUB])
    assert folder is not None
    tokenizer = AutoTokenizer.from_pretrained(folder)

    found = book(model_id, pad_to_max=True)

    assert {len(tokenizer(text)["input_ids"]) for text in texts_of(found)} == {limit_of(folder)}
    assert found.tokens == (limit_of(folder), limit_of(folder))
    assert found.warning is None


def test_padded_zero_shot_leaves_room_for_the_longest_label() -> None:
    """A padded zero-shot text and the longest hypothesis together have the maximum of tokens."""
    folder = find_tokenizer(TINY[1], None, [HUB])
    assert folder is not None
    tokenizer = AutoTokenizer.from_pretrained(folder)

    texts = texts_of(book(TINY[1], task="zero-shot-classification", pad_to_max=True))

    hypotheses = [HYPOTHESIS.format(label) for label in payloads.LABELS]
    longest = {max(len(tokenizer(text, other)["input_ids"]) for other in hypotheses) for text in texts}
    assert longest == {limit_of(folder)}


def test_mixed_texts_never_exceed_the_model() -> None:
    """Texts of mixed lengths never exceed the limit of the model."""
    folder = find_tokenizer(TINY[0], None, [HUB])
    assert folder is not None
    found = book(TINY[0], max_length=64)

    assert found.tokens is not None
    assert found.tokens[1] <= 64


def test_without_a_tokenizer_texts_are_shorter_and_a_warning_says_so() -> None:
    """Without a tokenizer texts are shorter than the limit, with a warning."""
    found = book("org/nowhere", pad_to_max=True)

    assert found.tokens is None
    assert found.warning is not None
    assert "its tokenizer was not found" in found.warning
    tokenizer = AutoTokenizer.from_pretrained(find_tokenizer(MINILM, None, []))
    lengths = [len(tokenizer(text)["input_ids"]) for text in texts_of(found)]
    assert all(100 < length <= 512 for length in lengths)


def test_bodies_are_what_the_tasks_take() -> None:
    """A body has a text or a list of texts, and for zero-shot also labels under `parameters`."""
    assert isinstance(json.loads(book().payloads[1][0].body)["inputs"], str)
    found = book(task="zero-shot-classification", batches=(1, 4))
    body = json.loads(found.payloads[4][0].body)
    assert len(body["inputs"]) == found.payloads[4][0].items == 4
    assert body["parameters"] == {"candidate_labels": list(payloads.LABELS)}


def test_own_texts_are_sent_as_they_are(tmp_path: Path) -> None:
    """Every line of a file of texts except blank ones is sent unchanged and in order."""
    file = tmp_path / "texts.txt"
    file.write_text("first line\n\n 둘째 \n", encoding="utf-8")

    assert texts_of(book(texts=file))[:3] == ["first line", " 둘째 ", "first line"]


@pytest.mark.parametrize(
    ("content", "code"), [(b"", "texts-empty"), (b"\n \n", "texts-empty"), (b"\xff\xfe", "texts-unreadable")]
)
def test_unusable_texts_are_told(tmp_path: Path, content: bytes, code: str) -> None:
    """An empty file of texts, and one in another encoding, are rejected."""
    file = tmp_path / "texts.txt"
    file.write_bytes(content)

    with refused(code, "--texts", kind=LoadError):
        book(texts=file)


def test_a_body_over_sagemakers_limit_is_told(tmp_path: Path) -> None:
    """A body over SageMaker's limit is rejected before the load test."""
    file = tmp_path / "texts.txt"
    file.write_text("x" * (MAX_BODY_BYTES // 4), encoding="utf-8")

    with refused("texts-too-large", "--batch-size", kind=LoadError):
        book(None, texts=file, batches=(1, 4))


def test_limits_come_from_the_configuration(tmp_path: Path) -> None:
    """A model's limit comes from its config: XLM-R's 514 positions give 512 tokens."""
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta", "max_position_embeddings": 514}')
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 1000000000000000019884624838656}')
    assert limit_of(tmp_path) == 512
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 128}')
    assert limit_of(tmp_path) == 128
    (tmp_path / "config.json").unlink()
    (tmp_path / "tokenizer_config.json").unlink()
    assert limit_of(tmp_path) == 512
    assert counter(None, (), 64).max_length == 64
