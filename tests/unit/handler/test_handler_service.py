"""Requests to a loaded model: shapes of answers, statuses of refusals, limits, headers."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from handler_calls import EMBED, LONG, MDEBERTA, MINILM, XLMR, HeldForward, InProcess, properties, served
from safetensors.torch import load_file, save_file

from cohost.handler.cohost_forward import Forward, Pending
from cohost.handler.cohost_frames import Level, TokenSequence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from handler_calls import Caller, Reply


ZERO_SHOT = "zero-shot-classification"
FEATURES = "feature-extraction"
GREAT = "the movie was great"


def replies(given: dict[str, str], *bodies: Any, **headers: str) -> list[Reply]:
    """The answers to requests that are sent together."""

    async def scenario(call: Caller) -> list[Reply]:
        return await asyncio.gather(*(call(body, **headers) for body in bodies))

    answers: list[Reply] = served(given, scenario)
    return answers


def zero_shot(labels: Any, inputs: Any = GREAT, **parameters: Any) -> dict[str, Any]:
    """A zero-shot body."""
    return {"inputs": inputs, "parameters": {"candidate_labels": labels, **parameters}}


CLASSIFICATION_REFUSALS = [
    (b'{"inputs":', 400, "body: is not JSON"),
    (b'{"inputs": "\xff"}', 400, "body: byte 12 is not UTF-8"),
    (b"[" * 100_000, 400, "body: is"),
    (["a"], 400, "body: got ['a']; allowed: an object"),
    ({}, 400, "inputs: is missing among []"),
    ({"instances": ["a"]}, 400, "inputs: is missing among ['instances']"),
    ({"inputs": None}, 400, "inputs: got None"),
    ({"inputs": []}, 400, "inputs: got []; allowed: at least one text"),
    ({"inputs": ["a", 5]}, 400, "inputs[1]: got 5"),
    ({"inputs": [["a", "b"]]}, 400, 'allowed: a text, or a pair {"text": ..., "text_pair": ...}'),
    (
        {"inputs": {"premise": "a", "hypothesis": "b"}},
        400,
        "inputs: got {'premise': 'a', 'hypothesis': 'b'}",
    ),
    ({"inputs": {"text": "a", "text_pair": 5}}, 400, "inputs.text_pair: got 5; allowed: a text"),
    ({"inputs": "\ud800"}, 400, "inputs: character 0 is half a surrogate pair"),
    ({"inputs": "a", "parameters": [1]}, 400, "parameters: got [1]"),
    ({"inputs": "a", "top_k": 1}, 400, 'top_k: stands beside inputs; fix: put it into the object "parameters"'),
    ({"inputs": "a", "parameters": {"topk": 1}}, 400, "parameters.topk: is not known; allowed:"),
    ({"inputs": "a", "parameters": {"top_k": 0}}, 400, "parameters.top_k: got 0"),
    ({"inputs": "a", "parameters": {"function_to_apply": "bogus"}}, 400, "one of softmax, sigmoid, none"),
    (
        {"inputs": "a", "parameters": {"max_length": 1}},
        400,
        "parameters.max_length: got 1; allowed: a number of",
    ),
    ({"inputs": "a", "parameters": {"padding": "left"}}, 400, "parameters.padding: got 'left'"),
    ({"inputs": "a", "parameters": {"truncation": "hard"}}, 400, "parameters.truncation: got 'hard'"),
    ({"inputs": "a", "parameters": {"return_all_scores": True}}, 400, "allowed: top_k null instead"),
    (
        {"inputs": ["a", LONG], "parameters": {"truncation": False}},
        400,
        "inputs[1]: has 602 tokens; allowed: 512",
    ),
    (
        {"inputs": {"text": "a", "text_pair": LONG}, "parameters": {"truncation": "only_first"}},
        400,
        "text_pair: is as long as the limit of 512 tokens",
    ),
]

ZERO_SHOT_REFUSALS = [
    ({"inputs": GREAT}, 400, "parameters.candidate_labels: got None"),
    ({"inputs": GREAT, "candidate_labels": ["a"]}, 400, "candidate_labels: stands beside inputs"),
    (zero_shot([]), 400, "parameters.candidate_labels: got []"),
    (zero_shot(["a", 3]), 400, "parameters.candidate_labels[1]: got 3"),
    (zero_shot(["a"], hypothesis_template="nope"), 400, "a text with one {} for the label"),
    (zero_shot(["a"], hypothesis_template="{:999999999}"), 400, "a text with one {} for the label"),
    (zero_shot(["a"], hypothesis_template="{0.__class__}"), 400, "a text with one {} for the label"),
    (zero_shot(["a"], hypothesis_template="{"), 400, "parameters.hypothesis_template:"),
    (zero_shot(["a"], multi_label="yes"), 400, "parameters.multi_label: got 'yes'; allowed: true or false"),
    (zero_shot([LONG]), 400, "parameters.candidate_labels: is as long as the limit of 512 tokens"),
    (zero_shot(["a"], inputs={"text": "a"}), 400, "since this task knows no pairs"),
]

FEATURE_REFUSALS = [
    (
        {"inputs": "a", "parameters": {"pooling": "max"}},
        400,
        "parameters.pooling: got 'max'; allowed: one of none",
    ),
    ({"inputs": "a", "parameters": {"tokenize_kwargs": {"x": 1}}}, 400, "parameters.tokenize_kwargs: got {'x': 1}"),
    ({"inputs": "a", "parameters": {"max_length": 9, "tokenize_kwargs": {"max_length": 9}}}, 400, "it once"),
]


@pytest.mark.parametrize(
    ("given", "cases"),
    [
        (properties(MINILM), CLASSIFICATION_REFUSALS),
        (properties(MINILM, ZERO_SHOT), ZERO_SHOT_REFUSALS),
        (properties(EMBED, FEATURES), FEATURE_REFUSALS),
    ],
    ids=["text-classification", ZERO_SHOT, FEATURES],
)
def test_what_is_wrong_is_named_and_never_answers_200(given: dict[str, str], cases: list[tuple[Any, int, str]]) -> None:
    """Each nearly right request is rejected with the name of the field and the right form."""
    for (body, status, message), answer in zip(cases, replies(given, *(body for body, _, _ in cases)), strict=True):
        assert (answer.status, message in answer.body["error"]) == (status, True), (body, answer.text)


def test_one_bad_item_among_thirty_one_good_ones_fails_alone() -> None:
    """Of 32 simultaneous requests the one bad request gets 400, and the others are answered."""
    bodies: list[Any] = [{"inputs": f"{GREAT} {n}"} for n in range(32)]
    bodies[13] = {"inputs": 13}
    statuses = [answer.status for answer in replies(properties(MINILM), *bodies)]
    assert statuses == [200] * 13 + [400] + [200] * 18


def test_callers_with_different_labels_share_a_batch_and_keep_their_own() -> None:
    """Requests with different labels, templates and multi_label share a batch and get their own answers."""
    bodies = [
        zero_shot(["food", "movie"]),
        zero_shot(["城市", "مدينة", "도시"], multi_label=True),
        zero_shot("a, b", hypothesis_template="it is {}"),
        zero_shot(["one", "one"]),
    ]

    backend = InProcess()

    async def scenario(call: Caller) -> list[Reply]:
        engine = backend.hosted._engine
        assert engine is not None
        engine._forward = held = HeldForward(engine._forward)  # type: ignore[assignment] # a wrapper
        first = asyncio.create_task(call(zero_shot(["first"])))
        await asyncio.to_thread(held.entered.wait, 60)
        waiting = [asyncio.create_task(call(body, cohost_batch="1")) for body in bodies]
        while len(engine._queues[Level.USUAL]) < 9:  # noqa: ASYNC110 - the queue tells nobody
            await asyncio.sleep(0.001)
        held.gate.set()
        await first
        return await asyncio.gather(*waiting)

    answers = served(properties(MINILM, ZERO_SHOT), scenario, backend)
    labels = [sorted(answer.body[0]["labels"]) for answer in answers]
    assert labels == [["food", "movie"], sorted(["城市", "مدينة", "도시"]), ["a", "b"], ["one", "one"]]
    # Of the nine sequences "one" comes twice, as does a word that is not in the vocabulary; each is computed once.
    assert {answer.headers["cohost-batch"].split("/")[0] for answer in answers} == {"7"}


def test_texts_over_the_limit_are_cut_and_the_answer_says_so() -> None:
    """A header counts truncated texts, and is missing if no text was truncated."""
    cut, whole = replies(properties(MINILM), {"inputs": ["a", LONG, LONG]}, {"inputs": "a"})
    assert cut.headers["cohost-truncated"] == "2"
    assert cut.headers["x-amzn-sagemaker-custom-attributes"] == "cohost-truncated=2"
    assert set(whole.headers) == {"content-type"}


@pytest.mark.parametrize("model", [MINILM, MDEBERTA, XLMR])
def test_texts_at_the_limit_and_one_beside_it_are_served(model: str) -> None:
    """Texts of one token below, at and above the limit are served; RoBERTa holds 512 tokens like the others."""
    words = {size: " ".join(["movie"] * size) for size in (1, 509, 510, 511)}
    answers = replies(properties(model), *({"inputs": text} for text in words.values()), cohost_batch="1")
    assert [answer.status for answer in answers] == [200] * 4
    assert "cohost-truncated" in answers[-1].headers


def test_a_text_of_100_000_characters_is_answered() -> None:
    """A text of 100,000 characters, with or without blanks, is truncated and answered."""
    answers = replies(properties(XLMR), {"inputs": "a" * 100_000}, {"inputs": "안녕 " * 33_334})
    assert [(answer.status, answer.headers["cohost-truncated"]) for answer in answers] == [(200, "1")] * 2


def test_each_limit_of_the_catalog_is_kept() -> None:
    """Texts, pairs and characters over a limit give 413 with the number, and are answered at the limit."""
    limits = {"max_texts_per_request": 3, "max_characters_per_text": 20, "max_sequences_per_request": 4}
    bodies = [["a"] * 3, ["a"] * 4, "a" * 20, "a" * 21]
    answers = replies(properties(MINILM, **limits), *({"inputs": body} for body in bodies))
    assert [answer.status for answer in answers] == [200, 413, 200, 413]
    assert "inputs: has 4 texts; allowed: 3 texts per request" in answers[1].body["error"]
    assert "has 21 characters; allowed: 20 characters" in answers[3].body["error"]
    many = replies(properties(MINILM, ZERO_SHOT, **limits), *(zero_shot("abcd"[:n].split(), "a") for n in (1,)))
    assert many[0].status == 200
    over = replies(
        properties(MINILM, ZERO_SHOT, **limits), zero_shot(["a", "b"], ["a"] * 2), zero_shot(["a", "b"], ["a"] * 3)
    )
    assert [answer.status for answer in over] == [200, 413]
    assert "2 labels for 3 texts are over the limit of 4" in over[1].body["error"]


def test_the_queue_limits_answer_503(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that would overfill the queue gets 503 at once, and other requests are served."""
    at_work, gate, own = threading.Event(), threading.Event(), Forward.launch

    gate.set()  # the warm-up goes through it too

    def held(self: Forward, sequences: Sequence[TokenSequence]) -> Pending:
        at_work.set()
        gate.wait(60)
        return own(self, sequences)

    async def scenario(call: Caller) -> tuple[Reply, list[Reply]]:
        gate.clear()
        at_work.clear()
        body = {"inputs": [GREAT] * 8}
        running = asyncio.create_task(call(body))
        await asyncio.to_thread(at_work.wait)
        two = {asyncio.create_task(call(body)) for _ in range(2)}
        try:
            (refused,), (waiting,) = await asyncio.wait(two, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gate.set()
        return refused.result(), await asyncio.gather(running, waiting)

    monkeypatch.setattr(Forward, "launch", held)
    refused, answered = served(properties(MINILM, max_queued_sequences=8, max_sequences_per_request=8), scenario)
    assert refused.status == 503
    assert "the queue is full" in refused.body["error"]
    assert [answer.status for answer in answered] == [200, 200]


def test_content_types_are_those_of_the_stock_handler() -> None:
    """Plain text, CSV and forms are parsed as by the stock handler, and other content types are rejected."""

    async def scenario(call: Caller) -> list[Reply]:
        return [
            await call(b"the movie", Content_Type="text/plain"),
            await call(b"inputs\nthe movie\nbad food\n", Content_Type="text/csv"),
            await call(b"text,text_pair\na,b\n", Content_Type="text/csv"),
            await call(b"the movie", Content_Type="application/x-www-form-urlencoded"),
            await call({"inputs": "a"}, Content_Type="APPLICATION/JSON; charset=utf-8"),
            await call(b"a,b\n1,2\n", Content_Type="text/csv"),
            await call(b"<a/>", Content_Type="application/xml"),
            await call({"inputs": "a"}, Accept="text/csv"),
        ]

    answers = served(properties(MINILM), scenario)
    assert [answer.status for answer in answers] == [200] * 5 + [400] * 3
    assert [len(answer.body) for answer in answers[:3]] == [1, 2, 1]


def test_padding_to_the_full_length_is_honoured() -> None:
    """Padding to the full length makes the device compute 512 tokens for a short text, with the same answer."""
    padded = {"inputs": GREAT, "parameters": {"padding": "max_length", "max_length": 512}}
    answers = replies(properties(MINILM), padded, {"inputs": GREAT}, cohost_batch="1")
    assert [answer.headers["cohost-batch"].split()[0] for answer in answers] == ["1/512", "1/6"]
    assert abs(answers[0].body[0]["score"] - answers[1].body[0]["score"]) < 1e-5


def test_sentence_embeddings_are_pooled_and_normalized() -> None:
    """Mean and first-token vectors equal those computed from every token's vector."""
    bodies = [{"inputs": ["the movie", "a"], "parameters": p} for p in ({}, {"pooling": "mean"}, {"pooling": "cls"})]
    bodies.append({"inputs": ["the movie", "a"], "parameters": {"pooling": "mean", "normalize": True}})
    for packing in ("true", "false"):
        tokens, mean, cls, unit = (a.body for a in replies(properties(EMBED, FEATURES, packing=packing), *bodies))
        expected = [np.mean(rows[0], axis=0) for rows in tokens]
        assert np.allclose(mean, expected, atol=1e-5)
        assert np.allclose(cls, [rows[0][0] for rows in tokens], atol=1e-6)
        assert np.allclose(unit, [vector / np.linalg.norm(vector) for vector in expected], atol=1e-5)


def test_the_catalogs_pooling_holds_where_a_request_says_nothing() -> None:
    """A request without a pooling gets the catalog's pooling."""
    (answer,) = replies(properties(EMBED, FEATURES, pooling="mean", normalize="true"), {"inputs": "a"})
    assert (len(answer.body), len(answer.body[0])) == (1, 64)
    assert sum(value**2 for value in answer.body[0]) == pytest.approx(1, abs=1e-5)


def test_precision_is_checked_on_load_and_refused_by_name(tmp_path: Any) -> None:
    """Weights that overflow in half precision refuse the load, naming model and dtype, or fall back when allowed."""
    model = overflowing(tmp_path)
    with pytest.raises(
        ValueError, match=r"dtype: fp16 is refused for .*: check text 0 gives a number that is not finite"
    ):
        served(properties(model, dtype="fp16"), _nothing)
    (answer,) = replies(properties(model, dtype="fp16", dtype_fallback="true"), {"inputs": GREAT})
    assert answer.status == 200


def test_half_precision_serves_when_it_passes_the_check() -> None:
    """bf16 is used if it passes the check, and answers within its precision."""
    bf16, fp32 = (
        replies(properties(EMBED, FEATURES, dtype=dtype), {"inputs": GREAT, "parameters": {"pooling": "mean"}})[0].body[
            0
        ]
        for dtype in ("bf16", "fp32")
    )
    differences = [abs(a - b) for a, b in zip(bf16, fp32, strict=True)]
    assert 0 < max(differences) < 0.1


def test_zero_shot_needs_a_label_that_says_entailment(tmp_path: Any) -> None:
    """A zero-shot model without an entailment label is rejected at its load."""
    labels = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
    model = copied(MINILM, tmp_path, lambda config: config | labels)
    with pytest.raises(ValueError, match="has the labels a, b, c, and zero-shot-classification needs one that starts"):
        served(properties(model, ZERO_SHOT), _nothing)


def test_counters_are_told_when_asked() -> None:
    """A request for counters gets requests, rejections, passes and padding as one object."""

    async def scenario(call: Caller) -> dict[str, Any]:
        await call({"inputs": "a"})
        await call({"inputs": 1})
        return await call.counters()

    counters = served(properties(MINILM), scenario)
    assert (counters["requests"], counters["refused"], counters["passes"], counters["tokens"]) == (3, 1, 1, 3)


def test_a_lost_device_ends_the_process() -> None:
    """Before anybody is answered, since the proxies send the calls to the next process."""
    backend = InProcess()
    ended_first: list[bool] = []

    async def scenario(call: Caller) -> None:
        engine = backend.hosted._engine
        assert engine is not None
        engine._forward = BrokenForward()  # type: ignore[assignment] # a stand-in
        task = asyncio.create_task(call({"inputs": "a"}))
        while not backend.ends:
            ended_first.append(not task.done())
            await asyncio.sleep(0.01)
        assert (await task).status == 503

    served(properties(MINILM), scenario, backend)
    assert backend.ends == [3]
    assert all(ended_first)


class BrokenForward:
    """A model on a GPU whose state is lost."""

    def packs(self, _sequence: object) -> bool:
        """Return False, because this model pads."""
        return False

    def length_of(self, _sequence: object) -> int:
        """Return a length of one."""
        return 1

    def tokens_of(self, sequences: Sequence[object]) -> int:
        """Return one token per sequence."""
        return len(sequences)

    def free_memory(self) -> None:
        """Free nothing, because this model has no cache."""

    depth = 1

    def launch(self, _sequences: object) -> None:
        """Raise torch's error."""
        raise RuntimeError("CUDA error: device-side assert triggered")


async def _nothing(_: Caller) -> None:
    """A scenario of no call."""


def copied(model: str, folder: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
    """A copy of a model with another configuration."""
    target = folder / "copy"
    shutil.copytree(model, target)
    config = target / "config.json"
    config.write_text(json.dumps(change(json.loads(config.read_text()))))
    return str(target)


def overflowing(folder: Any) -> str:
    """A copy whose classifier is beyond the range of fp16."""
    model = copied(MINILM, folder, dict)
    weights = load_file(f"{model}/model.safetensors")
    weights["classifier.weight"] *= 1e7
    save_file(weights, f"{model}/model.safetensors", metadata={"format": "pt"})
    return model
