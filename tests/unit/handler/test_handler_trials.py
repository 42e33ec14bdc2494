"""Trials of faster ways to run a model: used if working, equal and faster; left out after a death."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from handler_calls import MINILM, properties

from cohost.handler import cohost_packed, cohost_trials
from cohost.handler.cohost_loading import Loaded, load
from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_stream import HostStream
from cohost.handler.cohost_trials import Trial, Trials

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Linux counts to 2 to the power of 22.
MORE_THAN_ANY_PROCESS = 2**22 + 1
LOST = RuntimeError("CUDA error: device-side assert triggered")


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    """Capture the log from level INFO on."""
    caplog.set_level(logging.INFO)


def loaded(**options: object) -> Loaded:
    """A small BERT."""
    return load(read_options(properties(MINILM, **options)))


def failing(error: Exception) -> Callable[..., torch.Tensor]:
    """An attention that raises."""

    def attention(*_: Any) -> torch.Tensor:
        raise error

    return attention


def test_a_trial_that_loses_the_device_fails_the_load_and_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A trial of a faster way that loses the device fails the load, and the next process serves without that way."""
    with monkeypatch.context() as first:
        first.setattr(cohost_packed, "attention_within", failing(LOST))
        with pytest.raises(RuntimeError, match="device-side assert"):
            loaded()
    assert not loaded().packs
    (marker,) = (tmp_path / "cohost-trials").iterdir()
    assert f"packing: not used, a trial of it ended the process; remove {marker.parent}" in caplog.text
    marker.unlink()
    assert loaded().packs
    assert not list(marker.parent.iterdir())


def test_a_trial_beside_this_process_says_nothing_about_its_way() -> None:
    """The marker of a trial in a running process is not taken for a death."""
    mine = Trial("packing", ("model", "torch", "card"))
    mine.begin()
    for process, failed in ((os.getppid(), False), (MORE_THAN_ANY_PROCESS, True), (os.getpid(), True)):
        (marker,) = mine.folder.iterdir()
        marker.rename(mine.folder / f"{mine._prefix}{process}")
        assert mine.has_failed() is failed
    assert not Trial("packing", ("model", "torch", "another card")).has_failed()


def test_a_trial_for_which_memory_runs_out_is_a_way_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A way whose trial runs out of memory is not used."""
    monkeypatch.setattr(cohost_packed, "attention_within", failing(torch.OutOfMemoryError("CUDA out of memory")))
    assert not loaded().packs
    assert "packing: not used, CUDA out of memory" in caplog.text


@pytest.mark.parametrize("slow_at", [0, 1])
def test_a_way_that_is_slower_at_either_batch_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, slow_at: int
) -> None:
    """A way to compute passes is not used if it is slower with the small or the large batch of its trial."""
    totals: list[int] = []

    def seconds_of(forward: Any, batch: Any) -> float:
        total = sum(one.length for one in batch)
        if total not in totals:
            totals.append(total)
        return 0.2 if forward.packs(batch[0]) is (totals.index(total) == slow_at) else 0.1

    monkeypatch.setattr(cohost_trials, "seconds_of", seconds_of)
    assert not loaded().packs
    assert f"packing: not used, it takes 200.0 ms for batch {slow_at}, and the usual way 100.0 ms" in caplog.text


@pytest.mark.parametrize(("compiled_s", "winner"), [(0.01, "compile"), (0.03, "packing")])
def test_of_two_ways_the_faster_one_wins_and_the_log_says_which(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compiled_s: float, winner: str
) -> None:
    """Of two working ways the faster one is used and logged, even if the catalog asks for compilation."""
    own = cohost_trials.CompiledModel
    monkeypatch.setattr(cohost_trials, "CompiledModel", lambda model, limit: own(model, limit, lambda graph, _: graph))

    def seconds_of(forward: Any, batch: Any) -> float:
        if forward._compiled is not None:
            return compiled_s
        return 0.02 if forward.packs(batch[0]) else 0.04

    monkeypatch.setattr(cohost_trials, "seconds_of", seconds_of)
    assert loaded(compile="true", max_length=40, warm_up="false").packs is (winner == "packing")
    loser = {"compile": "packing", "packing": "compile"}[winner]
    assert f"{loser}: not used, {winner} is faster" in caplog.text


@pytest.mark.parametrize(("error", "kept"), [(0.019, True), (0.021, False), (float("nan"), False)])
def test_in_half_precision_a_way_may_err_twice_as_much_as_the_usual_one(error: float, kept: bool) -> None:  # noqa: FBT001
    """In half precision the error of a faster way against fp32 may be twice that of the usual way."""
    trials = Trials(
        read_options(properties(MINILM, dtype="bf16")),
        stream=HostStream(torch.device("cpu")),
        padding_ids=(0, 0),
        limit=8,
        samples=[],
    )
    reference = [np.asarray([0.5, 1.0], dtype=np.float32)]
    trials._reference = reference
    usual, way = (
        cohost_trials.Way(None, [reference[0] + np.float32(by)], [])  # type: ignore[arg-type] # not looked at
        for by in (-0.01, error)
    )
    assert (trials._fault(usual, way, "bf16") is None) is kept


def test_a_way_that_was_disturbed_once_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that another program disturbed once is repeated."""
    runs: list[int] = []

    def seconds_of(forward: Any, batch: Any) -> float:
        packs = forward.packs(batch[0])
        runs.append(packs)
        return 0.2 if packs and sum(runs) <= 6 else 0.02 if packs else 0.1

    monkeypatch.setattr(cohost_trials, "seconds_of", seconds_of)
    assert loaded().packs
