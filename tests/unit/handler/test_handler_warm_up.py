"""The passes before READY on a simulated GPU: their memory, their cost and their largest size."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from fakes.simulated_device import CARDS, Card, Clock, SimulatedForward
from handler_calls import properties

from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_tokenizer import Encoded
from cohost.handler.cohost_warm_up import Measured, warm_up

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 512
AUTO = 16_384


class NoisyClock(Clock):
    """A clock of a shared machine: each duration is up to a quarter longer."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)  # noqa: S311 - reproducible

    def sleep(self, seconds: float) -> None:
        """Let more time pass."""
        super().sleep(seconds * self._random.uniform(1.0, 1.25))


def warm(forward: SimulatedForward, tokens: int = AUTO, **given: object) -> Measured:
    """Warms a model up."""
    sample = Encoded(np.ones(LIMIT, np.int32), None, truncated=False)
    loaded: Any = SimpleNamespace(forward=forward, device=torch.device("cuda"), limit=LIMIT, samples=[sample])
    auto = {"pass_cost_tokens": "auto", "max_batch_tokens": "auto"} | given
    return warm_up(loaded, read_options(properties("model", **auto)), tokens)


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("name", CARDS)
def test_the_cost_of_a_pass_is_within_twice_the_truth(name: str, seed: int) -> None:
    """Eight tokens and some hundred take as long as their launches, so their difference says nothing."""
    measured = warm(SimulatedForward(CARDS[name], NoisyClock(seed)))
    assert CARDS[name].pass_cost / 2 <= measured.pass_cost <= 2 * CARDS[name].pass_cost


@pytest.mark.parametrize(("name", "tokens"), [("MiniLM-L6", AUTO), ("mDeBERTa", 6100), ("XLM-R-large", 3250)])
def test_a_pass_is_as_large_as_50_ms_allow(name: str, tokens: int) -> None:
    """Later requests wait for one short pass at most, as do models that share the GPU; never over the ceiling."""
    measured = warm(SimulatedForward(CARDS[name], Clock()))
    assert measured.max_batch_tokens == pytest.approx(tokens, rel=0.01)
    assert measured.pass_timeout_s == 20


def test_a_size_that_the_catalog_gives_is_kept() -> None:
    """Whoever writes max_batch_tokens wants passes that long."""
    forward = SimulatedForward(CARDS["XLM-R-large"], Clock())
    assert warm(forward, 8192, max_batch_tokens=8192).max_batch_tokens == 8192


@pytest.mark.parametrize("warm_first", ["true", "false"])
def test_memory_that_runs_out_before_ready_lowers_the_largest_pass(warm_first: str) -> None:
    """The model is served with what fits, and torch's cache is emptied before each smaller attempt."""
    forward = SimulatedForward(Card(0.003, 1_000_000, memory_tokens=5000), Clock())
    measured = warm(forward, warm_up=warm_first)
    assert (measured.max_batch_tokens, forward.freed) == (4096, 2)


def test_a_model_whose_longest_text_does_not_fit_is_not_loaded() -> None:
    """No smaller pass would help."""
    forward = SimulatedForward(Card(0.003, 1_000_000, memory_tokens=LIMIT - 1), Clock())
    with pytest.raises(torch.OutOfMemoryError):
        warm(forward)


def test_a_model_that_fails_is_not_tried_in_smaller_passes() -> None:
    """Only a lack of memory is."""
    runs: list[int] = []

    def fails(sequences: Sequence[Any]) -> Exception:
        runs.append(len(sequences))
        return RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        warm(SimulatedForward(CARDS["mDeBERTa"], Clock(), fails))
    assert len(runs) == 1
