"""Answers do not depend on the process that has the model: the proxy with an engine process answers as one process.

The same requests go both ways: all recorded ones, a sample of the random ones, and those that are refused.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from handler_calls import EMBED, LONG, MDEBERTA, MINILM, XLMR, properties, served
from test_handler_equality import classification, differences, features, zero_shot
from test_handler_recordings import MODELS, NUMBER, recorded
from test_handler_service import CLASSIFICATION_REFUSALS, FEATURE_REFUSALS, ZERO_SHOT_REFUSALS

if TYPE_CHECKING:
    from engine_process import SharedEngine
    from handler_calls import Caller, Reply

pytestmark = pytest.mark.process

TOLERANCE = 1e-5
CLASSIFICATION, ZERO_SHOT, FEATURES = "text-classification", "zero-shot-classification", "feature-extraction"
Request = tuple[Any, dict[str, str]]


def both(engine: SharedEngine, given: dict[str, str], requests: list[Request]) -> tuple[list[Reply], list[Reply]]:
    """The answers to requests that are sent together, of one process and of two."""

    async def scenario(call: Caller) -> list[Reply]:
        return await asyncio.gather(*(call(body, **headers) for body, headers in requests))

    return served(given, scenario), engine.served(given, scenario)


@pytest.mark.parametrize("model", MODELS)
def test_recorded_requests_are_answered_the_same(shared_engine: SharedEngine, model: str) -> None:
    """Byte for byte but for the last digits of scores."""
    path, task = MODELS[model]
    requests = [
        (
            exchange["request"]["body"].encode(),
            {name.replace("-", "_"): value for name, value in exchange["request"]["headers"].items()},
        )
        for exchange in recorded(model)
    ]
    for one, other in zip(*both(shared_engine, properties(path, task), requests), strict=True):
        assert one.status == other.status == 200
        assert NUMBER.sub("#", one.text) == NUMBER.sub("#", other.text)
        pairs = zip(map(float, NUMBER.findall(one.text)), map(float, NUMBER.findall(other.text)), strict=True)
        assert max(abs(ours - theirs) for ours, theirs in pairs) < TOLERANCE


@pytest.mark.parametrize(
    ("model", "task", "draw"),
    [
        (MINILM, CLASSIFICATION, classification),
        (XLMR, CLASSIFICATION, classification),
        (MDEBERTA, ZERO_SHOT, zero_shot),
        (EMBED, FEATURES, features),
    ],
    ids=["minilm", "xlmr", "mdeberta", "embed"],
)
def test_random_requests_are_answered_the_same(shared_engine: SharedEngine, model: str, task: str, draw: Any) -> None:
    """Texts of all lengths, pairs, labels, cuts and poolings, sent together; a tie may be in another order."""
    rng = random.Random(f"homes {task}")  # noqa: S311 - reproducible
    requests: list[Request] = [(draw(rng), {}) for _ in range(16)]
    ours, theirs = both(shared_engine, properties(model, task), requests)
    for one, other in zip(ours, theirs, strict=True):
        assert one.status == other.status == 200
        assert one.headers == other.headers
        assert max(differences(_by_score(one.body), _by_score(other.body))) < TOLERANCE


def _by_score(answer: Any) -> Any:
    """Scores without the names beside them, since equal scores may swap theirs."""
    if isinstance(answer, dict):
        return answer.get("scores", answer.get("score"))
    return [_by_score(one) for one in answer] if isinstance(answer, list) else answer


@pytest.mark.parametrize(
    ("model", "task", "cases"),
    [
        (MINILM, CLASSIFICATION, CLASSIFICATION_REFUSALS),
        (MINILM, ZERO_SHOT, ZERO_SHOT_REFUSALS),
        (EMBED, FEATURES, FEATURE_REFUSALS),
    ],
    ids=[CLASSIFICATION, ZERO_SHOT, FEATURES],
)
def test_what_is_wrong_is_refused_with_the_same_words(
    shared_engine: SharedEngine, model: str, task: str, cases: list[tuple[Any, int, str]]
) -> None:
    """Status, text and headers."""
    ours, theirs = both(shared_engine, properties(model, task), [(body, {}) for body, _, _ in cases])
    assert [(one.status, one.text, one.headers) for one in theirs] == [
        (one.status, one.text, one.headers) for one in ours
    ]
    assert {one.status for one in theirs} == {400}


def test_headers_and_counters_come_from_both_processes(shared_engine: SharedEngine) -> None:
    """Requests, refusals and cuts as the proxy saw them, passes as the engine process ran them."""

    async def scenario(call: Caller) -> tuple[Reply, dict[str, Any]]:
        answer = await call({"inputs": ["a", LONG]}, cohost_batch="1")
        await call({"inputs": 1})
        return answer, await call.counters()

    answer, counters = shared_engine.served(properties(MINILM), scenario)
    assert answer.headers["cohost-truncated"] == "1"
    assert answer.headers["cohost-batch"].startswith(("2/", "1/"))
    names = ("requests", "refused", "truncated", "sequences", "engine_models", "engine_starts", "dtype", "device")
    assert [counters[name] for name in names] == [3, 1, 1, 2, 1, 1, "fp32", "cpu"]
    assert counters["passes"] in (1, 2)
