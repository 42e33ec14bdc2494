"""Copies between host and GPU, with a stand-in for torch's calls of the driver."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from cohost.handler import cohost_stream
from cohost.handler.cohost_stream import CudaStream, stream_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the driver was asked for, in order; the device is the host's memory."""
    calls: list[str] = []

    class Event:
        def __init__(self, *, blocking: bool) -> None:
            calls.append(f"event, blocking {blocking}")

        def record(self, stream: str) -> None:
            calls.append(f"recorded in {stream}")

        def synchronize(self) -> None:
            calls.append("waited")

    def empty(*shape: Any, pin_memory: bool = False, **given: Any) -> torch.Tensor:
        calls.append(f"pinned {pin_memory}")
        return new(*shape, **given)

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        calls.append("pinned")
        return tensor

    new = torch.empty
    cuda = SimpleNamespace(
        Event=Event, current_stream=lambda _: "the stream", set_device=lambda d: calls.append(str(d))
    )
    monkeypatch.setattr(cohost_stream, "torch", SimpleNamespace(cuda=cuda, empty=empty, from_numpy=torch.from_numpy))
    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    before = sys.getswitchinterval()
    yield calls
    sys.setswitchinterval(before)


def test_what_goes_to_a_gpu_starts_from_pinned_memory(driver: list[str]) -> None:
    """A copy from other memory makes the thread wait."""
    numbers = CudaStream(torch.device("cpu")).upload(np.arange(3, dtype=np.int32))
    assert (numbers.tolist(), driver) == ([0, 1, 2], ["pinned"])


def test_a_thread_that_reads_a_pass_sleeps(driver: list[str]) -> None:
    """The copy back is begun at once, behind the pass; the wait is for an event that gives the core away."""
    read = CudaStream(torch.device("cpu")).download(torch.ones(2))
    assert driver == ["pinned True", "event, blocking True", "recorded in the stream"]
    assert (read().tolist(), driver[3:]) == ([1, 1], ["waited"])


def test_the_thread_that_launches_gets_the_interpreters_lock_often(driver: list[str]) -> None:
    """Hundreds of launches a pass wait for it; the device becomes the thread's own."""
    CudaStream(torch.device("cuda:1")).enter()
    assert (driver, sys.getswitchinterval()) == (["cuda:1"], 5e-4)


def test_a_cpu_runs_one_pass_at_a_time() -> None:
    """A second one would be computed before the first is answered."""
    assert [stream_of(torch.device(name)).depth for name in ("cpu", "cuda")] == [1, 2]
