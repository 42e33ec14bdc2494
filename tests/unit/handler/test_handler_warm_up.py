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

from cohost.handler import cohost_warm_up
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


def warm(
    monkeypatch: pytest.MonkeyPatch, forward: SimulatedForward, clock: Clock, tokens: int = AUTO, **given: object
) -> Measured:
    """Warms a model up."""
    monkeypatch.setattr(cohost_warm_up, "time", clock)
    sample = Encoded(np.ones(LIMIT, np.int32), None, truncated=False)
    loaded: Any = SimpleNamespace(forward=forward, device=torch.device("cuda"), limit=LIMIT, samples=[sample])
    auto = {"pass_cost_tokens": "auto", "max_batch_tokens": "auto"} | given
    return warm_up(loaded, read_options(properties("model", **auto)), tokens)


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("name", CARDS)
def test_the_cost_of_a_pass_is_within_twice_the_truth(monkeypatch: pytest.MonkeyPatch, name: str, seed: int) -> None:
    """The measured cost of a pass is within a factor of two, although small passes take equally long."""
    clock = NoisyClock(seed)
    measured = warm(monkeypatch, SimulatedForward(CARDS[name], clock), clock)
    assert CARDS[name].pass_cost / 2 <= measured.pass_cost <= 2 * CARDS[name].pass_cost


@pytest.mark.parametrize(("name", "tokens"), [("MiniLM-L6", AUTO), ("mDeBERTa", 6100), ("XLM-R-large", 3250)])
def test_a_pass_is_as_large_as_50_ms_allow(monkeypatch: pytest.MonkeyPatch, name: str, tokens: int) -> None:
    """The largest pass takes about 50 ms, so other requests and models wait shortly."""
    measured = warm(monkeypatch, SimulatedForward(CARDS[name], clock := Clock()), clock)
    assert measured.max_batch_tokens == pytest.approx(tokens, rel=0.01)
    assert measured.pass_timeout_s == 20


def test_a_size_that_the_catalog_gives_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warm-up does not lower a max_batch_tokens that the catalog sets."""
    forward = SimulatedForward(CARDS["XLM-R-large"], clock := Clock())
    assert warm(monkeypatch, forward, clock, 8192, max_batch_tokens=8192).max_batch_tokens == 8192


@pytest.mark.parametrize("warm_first", ["true", "false"])
def test_memory_that_runs_out_before_ready_lowers_the_largest_pass(
    monkeypatch: pytest.MonkeyPatch, warm_first: str
) -> None:
    """If memory runs out in the warm-up, the largest pass is lowered and torch's cache emptied each time."""
    forward = SimulatedForward(Card(0.003, 1_000_000, memory_tokens=5000), clock := Clock())
    measured = warm(monkeypatch, forward, clock, warm_up=warm_first)
    assert (measured.max_batch_tokens, forward.freed) == (4096, 2)


def test_a_model_whose_longest_text_does_not_fit_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose longest text does not fit into memory alone is not loaded."""
    forward = SimulatedForward(Card(0.003, 1_000_000, memory_tokens=LIMIT - 1), clock := Clock())
    with pytest.raises(torch.OutOfMemoryError):
        warm(monkeypatch, forward, clock)


def test_a_model_that_fails_is_not_tried_in_smaller_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warm-up tries smaller passes only after a lack of memory, and after no other error."""
    runs: list[int] = []

    def fails(sequences: Sequence[Any]) -> Exception:
        runs.append(len(sequences))
        return RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        warm(monkeypatch, SimulatedForward(CARDS["mDeBERTa"], clock := Clock(), fails), clock)
    assert len(runs) == 1
