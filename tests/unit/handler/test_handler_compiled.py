"""A compiled model: equal answers, few compilations, and no compilation without a compiler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import torch
from handler_calls import MINILM, properties, served

from cohost.handler import cohost_trials
from cohost.handler.cohost_forward import CompiledModel
from cohost.handler.cohost_loading import load
from cohost.handler.cohost_options import read_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from handler_calls import Caller

LENGTHS = (16, 32, 40)


class Backend:
    """A fake compiler that counts programs and runs them uncompiled, because torch's takes seconds for each."""

    def __init__(self, fail_after: int = 1000) -> None:
        self.programs = 0
        self._fail_after = fail_after

    def __call__(self, graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., Any]:
        """Count one more program."""
        self.programs += 1
        if self.programs > self._fail_after:
            raise RuntimeError("no C++ compiler")
        return graph.forward


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    """Replace torch's compiler."""
    return use(monkeypatch, Backend())


def use(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> Backend:
    """Compile with this backend."""
    torch.compiler.reset()
    monkeypatch.setattr(cohost_trials, "CompiledModel", lambda model, limit: CompiledModel(model, limit, backend))
    return backend


def options(**given: object) -> dict[str, str]:
    """A small model, 40 tokens at most."""
    return properties(MINILM, max_length=40, warm_up="false", **given)


async def crowd(call: Caller) -> list[float]:
    """The scores of texts of all lengths, alone and then in batches of many sizes."""
    texts = [" ".join(["movie"] * n) for n in (1, 7, 14, 15, 20, 30, 31, 100)]
    answers = [(await call({"inputs": text})).body[0]["score"] for text in texts]
    for many in (2, 3, 8):
        asked = [call({"inputs": texts[(start + index) % 8]}) for start in range(0, 8, many) for index in range(many)]
        answers += [answer.body[0]["score"] for answer in await asyncio.gather(*asked)]
    return answers


def test_answers_are_the_same_and_compilations_are_bounded(backend: Backend) -> None:
    """For any lengths and numbers of texts, at most two programs are compiled per bucket of lengths."""
    compiled = served(options(compile="true"), crowd)
    assert compiled == pytest.approx(served(options(packing="false"), crowd), abs=1e-5)
    assert len(LENGTHS) <= backend.programs <= 2 * len(LENGTHS)


def test_warm_up_meets_all_shapes_that_can_come(backend: Backend) -> None:
    """The warm-up compiles all shapes, so no caller waits for a compilation."""

    async def scenario(call: Caller) -> int:
        before = backend.programs
        await crowd(call)
        return backend.programs - before

    assert served(options(compile="true") | {"warm_up": "true"}, scenario) == 0


def test_batches_are_filled_up_to_a_bucket(backend: Backend) -> None:  # noqa: ARG001 - it is what compiles
    """The cost of a batch includes the padding up to its bucket."""

    async def scenario(call: Caller) -> str:
        return (await call({"inputs": "good food"}, cohost_batch="true")).headers["cohost-batch"]

    assert served(options(compile="true"), scenario).startswith("1/16 ")


def test_buckets_double_up_to_the_limit() -> None:
    """Bucket lengths double up to the limit, which is the last bucket."""
    for limit, lengths in ((40, LENGTHS), (64, (16, 32, 64)), (10, (10,))):
        assert CompiledModel(None, limit).lengths == lengths


def test_without_a_compiler_the_model_runs_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a compiler the model runs uncompiled, packed if possible, and the log has a line about it."""
    use(monkeypatch, Backend(fail_after=0))
    assert load(read_options(options(compile="true"))).packs is load(read_options(options())).packs
    assert "compile: not used" in caplog.text
    assert "no C++ compiler" in caplog.text


def test_a_compiler_that_fails_later_fails_no_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If a shape cannot be compiled, it and all later shapes run uncompiled."""
    backend = use(monkeypatch, Backend(fail_after=3))
    assert served(options(compile="true"), crowd) == pytest.approx(served(options(packing="false"), crowd), abs=1e-5)
    assert backend.programs == 4
    assert "compile: not used from here on" in caplog.text


def test_memory_that_runs_out_is_no_fault_of_the_compiler() -> None:
    """An out-of-memory error in a compiled pass leads to a halved batch, and the program stays in use."""
    compiled = CompiledModel(None, 16)

    def no_room(**_: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("out of memory")

    compiled._passes[16] = no_room
    with pytest.raises(torch.OutOfMemoryError):
        compiled(input_ids=torch.ones(1, 16, dtype=torch.int64))
    assert compiled.failure is None
