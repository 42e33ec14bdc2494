"""Answers do not depend on the batch: they are transformers' answers to single texts."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import transformers
from handler_calls import EMBED, MDEBERTA, MINILM, XLMR, HeldForward, InProcess, properties, served
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from handler_calls import Caller

WORDS = [
    *["the", "movie", "was", "great", "and", "good", "food", "city", "water", "bad"],
    *["배송이", "빨라서", "아주", "만족합니다", "这家餐厅的菜很好吃", "但是服务太慢了"],
    *["كانت", "الرحلة", "طويلة", "لكنها", "ممتعة", "🎉", "👍🏽", "e\u0301", "ß", "İ"],
]
TOLERANCE = 1e-4
SHARPER = 40
LEAST_SPREAD = 0.05
LIMIT = 512


def text(rng: random.Random) -> str:
    """Return a text of 1 to some 600 tokens in several scripts, most of them short."""
    size = rng.choice([rng.randint(1, 12), rng.randint(1, 12), rng.randint(13, 80), rng.randint(81, 600)])
    return " ".join(rng.choice(WORDS) for _ in range(size))


def classification(rng: random.Random) -> dict[str, Any]:
    """Return a call for text-classification with any texts, pairs and parameters."""

    def one() -> Any:
        return text(rng) if rng.random() < 0.6 else {"text": text(rng), "text_pair": text(rng)}

    inputs = one() if rng.random() < 0.7 else [one() for _ in range(rng.randint(1, 4))]
    parameters: dict[str, Any] = {}
    if rng.random() < 0.5:
        parameters["top_k"] = rng.choice([None, 1, 2, 3])
    if rng.random() < 0.3:
        parameters["function_to_apply"] = rng.choice(["softmax", "sigmoid", "none"])
    if rng.random() < 0.2:
        parameters |= {"max_length": rng.randint(8, 128)}
    if rng.random() < 0.05:
        parameters |= {"padding": "max_length"}
    return {"inputs": inputs, "parameters": parameters}


def zero_shot(rng: random.Random) -> dict[str, Any]:
    """Return a call for zero-shot-classification with labels, template and multi_label."""
    labels = list(dict.fromkeys(rng.choice(WORDS) for _ in range(rng.randint(1, 4))))
    parameters: dict[str, Any] = {"candidate_labels": labels if rng.random() < 0.8 else ", ".join(labels)}
    if rng.random() < 0.5:
        parameters["hypothesis_template"] = rng.choice(["It is {}.", "{}", "이것은 {} 이다", "{0} and {0}"])
    if rng.random() < 0.5:
        parameters["multi_label"] = rng.random() < 0.5
    inputs = text(rng) if rng.random() < 0.7 else [text(rng) for _ in range(2)]
    return {"inputs": inputs, "parameters": parameters}


def features(rng: random.Random) -> dict[str, Any]:
    """A call for feature-extraction, every token's vector."""
    return {"inputs": text(rng) if rng.random() < 0.7 else [text(rng), text(rng)]}


def expected(pipeline: Any, call: dict[str, Any]) -> list[Any]:
    """Return the answer of the stock handler: of a pipeline that runs the texts one by one, cut at the limit."""
    inputs = call["inputs"] if isinstance(call["inputs"], list) else [call["inputs"]]
    given = dict(call.get("parameters", {}))
    if pipeline.task == "text-classification":
        given = {"truncation": True, "max_length": LIMIT} | given
    if pipeline.task == "feature-extraction":
        given = {"tokenize_kwargs": {"truncation": True, "max_length": LIMIT}}
    answer: list[Any] = pipeline(inputs, **given)
    return answer


def differences(got: Any, wanted: Any) -> list[float]:
    """Return the differences of all numbers of two values that are otherwise equal."""
    if isinstance(wanted, dict):
        assert got.keys() == wanted.keys()
        return [one for key in wanted for one in differences(got[key], wanted[key])]
    if isinstance(wanted, list | tuple):
        assert len(got) == len(wanted)
        return [one for pair in zip(got, wanted, strict=True) for one in differences(*pair)]
    if isinstance(wanted, float):
        return [abs(got - wanted)]
    assert got == wanted
    return []


def by_label(answer: Any) -> Any:
    """Return an answer sorted by label, because labels with nearly equal scores may swap."""
    if isinstance(answer, dict) and "labels" in answer:
        scores = dict(sorted(zip(answer["labels"], answer["scores"], strict=True)))
        return {"sequence": answer["sequence"], "scores": scores}
    if isinstance(answer, list) and answer and isinstance(answer[0], list) and isinstance(answer[0][0], dict):
        return [{entry["label"]: entry["score"] for entry in text_answer} for text_answer in answer]
    return [by_label(one) for one in answer] if isinstance(answer, list) else answer


def sharpened(model: str, root: Path) -> str:
    """Return a copy with a scaled last layer, because tiny models score all texts nearly equal."""
    folder = root / Path(model).name
    shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    last = [name for name in weights if name in {"classifier.weight", "classifier.out_proj.weight"}]
    for name in last:
        weights[name] *= SHARPER
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


def numbers(answer: Any) -> list[float]:
    """Return all numbers of an answer."""
    if isinstance(answer, dict | list):
        return [one for part in (answer.values() if isinstance(answer, dict) else answer) for one in numbers(part)]
    return [answer] if isinstance(answer, float) else []


@pytest.mark.parametrize(
    ("model", "task", "draw", "number", "packing"),
    [
        (MINILM, "text-classification", classification, 160, True),
        (XLMR, "text-classification", classification, 80, True),
        (MDEBERTA, "text-classification", classification, 60, True),
        (MINILM, "zero-shot-classification", zero_shot, 70, False),
        (XLMR, "zero-shot-classification", zero_shot, 50, True),
        (MDEBERTA, "zero-shot-classification", zero_shot, 30, False),
        (EMBED, "feature-extraction", features, 50, True),
    ],
    ids=lambda value: value if isinstance(value, int) else getattr(value, "__name__", str(value).rpartition("/")[2]),
)
def test_random_requests_sent_together_answer_as_alone(
    model: str,
    task: str,
    draw: Any,
    number: int,
    packing: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    """Each of 500 random requests, all sent at once, gets the answer that transformers gives for it alone in fp32.

    Without padding and with it.
    """
    rng = random.Random(f"{model} {task}".rpartition("/")[2])  # noqa: S311 - reproducible
    model = sharpened(model, tmp_path)
    calls = [draw(rng) for _ in range(number)]
    pipeline = transformers.pipeline(
        task, model=model, tokenizer=transformers.AutoTokenizer.from_pretrained(model), dtype="float32"
    )
    wanted = [expected(pipeline, call) for call in calls]

    backend = InProcess()

    async def together(call: Caller) -> tuple[list[Any], dict[str, Any]]:
        engine: Any = backend.hosted._engine
        engine._forward = held = HeldForward(engine._forward)
        queued, queue = 0, engine.run

        async def counted(sequences: Any, **given: Any) -> Any:
            nonlocal queued
            queued += 1
            return await queue(sequences, **given)

        engine.run = counted
        answers = asyncio.gather(*map(call, calls))
        # A busy machine may be slower to take requests in than the model is to answer them one by one.
        while queued < number:  # noqa: ASYNC110 - the queue tells nobody
            await asyncio.sleep(0.001)
        held.gate.set()
        return await answers, await call.counters()

    replies, counters = served(properties(model, task, packing=packing), together, backend)
    spread = [found[len(found) // 2] for found in map(numbers, wanted)]
    assert max(spread) - min(spread) > LEAST_SPREAD, "every text has the same answer, so equality says nothing"
    assert counters["sequences_per_pass"] > 4, "requests were not batched"
    for call, reply, answer in zip(calls, replies, wanted, strict=True):
        assert reply.status == 200, reply.text
        assert max(differences(by_label(reply.body), by_label(answer))) < TOLERANCE, call
