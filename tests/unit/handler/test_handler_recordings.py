"""The handler's answers equal recordings of the real server's stock handler: same text, scores to 1e-4."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from handler_calls import EMBED, LONG, MDEBERTA, MINILM, properties, served

from local_aws.lmi.handler_api.outputs import encode_json

if TYPE_CHECKING:
    from handler_calls import Caller

VECTORS = Path(__file__).parents[2] / "data" / "djl_vectors"
MODELS = {
    "minilm": (MINILM, "text-classification"),
    "deberta": (MDEBERTA, "text-classification"),
    "zsc": (MINILM, "zero-shot-classification"),
}
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
TOLERANCE = 1e-4
# Where ours is not the recorded answer on purpose: recorded texts were shortened, or a parameter is refused by name.
ELSEWHERE = ("600 tok", "one too long", "unknown parameter", "return_all_scores", "big body", "NaN in json")


def recorded(model: str) -> list[dict[str, Any]]:
    """The recorded exchanges with a model that were answered with a prediction."""
    exchanges = []
    for file in ("02v_tf590.json", "04_other_tasks.json"):
        for exchange in json.loads((VECTORS / file).read_text())["vectors"]:
            request, response = exchange.get("request", {}), exchange.get("response", {})
            answered = response.get("status") == 200 and str(response.get("body")).startswith("[\n")
            here = request.get("path") == f"/models/{model}/invoke" and not any(
                w in exchange["name"] for w in ELSEWHERE
            )
            if answered and here and request.get("body") and "TRUNCATED" not in response["body"]:
                exchanges.append(exchange)
    return exchanges


@pytest.mark.parametrize("model", MODELS)
def test_recorded_predictions_are_answered_with_the_same_text(model: str) -> None:
    """Byte for byte but for the last digits of scores: labels, order, nesting, indentation."""
    exchanges = recorded(model)
    assert exchanges

    async def scenario(call: Caller) -> list[Any]:
        return await asyncio.gather(
            *(
                call(
                    exchange["request"]["body"].encode(),
                    **{name.replace("-", "_"): value for name, value in exchange["request"]["headers"].items()},
                )
                for exchange in exchanges
            )
        )

    path, task = MODELS[model]
    for exchange, answer in zip(exchanges, served(properties(path, task), scenario), strict=True):
        wanted = exchange["response"]["body"]
        assert answer.status == 200, (exchange["name"], answer.text)
        assert NUMBER.sub("#", answer.text) == NUMBER.sub("#", wanted), exchange["name"]
        pairs = zip(map(float, NUMBER.findall(answer.text)), map(float, NUMBER.findall(wanted)), strict=True)
        assert max(abs(ours - theirs) for ours, theirs in pairs) < TOLERANCE, exchange["name"]


def test_what_the_stock_handler_fails_on_is_cut_and_answered() -> None:
    """A text of 600 tokens, a 424 of the stock handler, gets the recorded answer with truncation."""

    async def scenario(call: Caller) -> Any:
        return await call({"inputs": LONG})

    answer = served(properties(MINILM), scenario)
    assert abs(answer.body[0]["score"] - 0.3473190665245056) < TOLERANCE


def test_vectors_are_written_as_the_stock_handler_writes_them() -> None:
    """Vectors are written in the stock handler's JSON form."""

    async def scenario(call: Caller) -> Any:
        return await call({"inputs": ["the", "a dog"]})

    answer = served(properties(EMBED, "feature-extraction"), scenario)
    assert answer.text.encode() == encode_json(answer.body)
    assert [len(text[0]) for text in answer.body] == [3, 6]
