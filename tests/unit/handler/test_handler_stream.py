"""Copies between host and GPU, with a fake of torch's calls of the driver."""

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


class FakeCuda:
    """A fake torch.cuda that records every call; it is also its own events, streams and graphs."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """A call of the driver."""

        def call(*positional: Any, **given: Any) -> Any:
            devices = [str(one) for one in positional if isinstance(one, torch.device)]
            self.calls.append(" ".join([name, *devices, *(f"{key}={value}" for key, value in given.items())]))
            return 7 if name == "graph_pool_handle" else self

        return call

    def __enter__(self) -> None:
        """A stream or a recording begins."""

    def __exit__(self, *_: object) -> None:
        """End the stream."""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return a driver that lists its calls in order; the device's memory is the host's."""
    cuda, new = FakeCuda(), torch.empty

    def empty(*shape: Any, pin_memory: bool, **given: Any) -> torch.Tensor:
        cuda.calls.append(f"pinned {pin_memory}")
        return new(*shape, **given)

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        cuda.calls.append("pinned")
        return tensor

    monkeypatch.setattr(cohost_stream, "torch", SimpleNamespace(cuda=cuda, empty=empty, from_numpy=torch.from_numpy))
    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    before = sys.getswitchinterval()
    yield cuda.calls
    sys.setswitchinterval(before)


def test_what_goes_to_a_gpu_starts_from_pinned_memory(driver: list[str]) -> None:
    """Copies to the GPU start from pinned memory, because other copies make the thread wait."""
    numbers = CudaStream(torch.device("cpu")).upload(np.arange(3, dtype=np.int32))
    assert (numbers.tolist(), driver) == ([0, 1, 2], ["pinned"])


def test_a_thread_that_reads_a_pass_sleeps(driver: list[str]) -> None:
    """The copy back is begun at once, behind the pass; the wait is for an event that gives the core away."""
    read = CudaStream(torch.device("cpu")).download(torch.ones(2))
    assert driver == ["pinned True", "Event blocking=True", "current_stream cpu", "record"]
    assert (read().tolist(), driver[4:]) == ([1, 1], ["synchronize"])


def test_the_thread_that_launches_gets_the_interpreters_lock_often(driver: list[str]) -> None:
    """The launching thread gets a short switch interval, because each pass has hundreds of launches."""
    CudaStream(torch.device("cuda:1")).enter()
    assert (driver, sys.getswitchinterval()) == (["set_device cuda:1"], 5e-4)


def test_recordings_share_one_pool_and_are_made_behind_first_runs(driver: list[str]) -> None:
    """CUDA graphs share one memory pool and are recorded after a first run, which cannot be recorded."""
    ran: list[str] = []

    def run() -> torch.Tensor:
        ran.append(driver[-1])
        return torch.ones(1)

    stream = CudaStream(torch.device("cpu"))
    for _ in range(2):
        replay, output = stream.record(run)
        replay()
        assert output.tolist() == [1]
    behind = ["current_stream cpu", "wait_stream"]
    made = ["Stream cpu", *behind, "stream", *behind, "CUDAGraph"]
    recorded = ["graph pool=7", "replay"]
    assert driver == [*made, "graph_pool_handle", *recorded, *made, *recorded]
    assert ran == [*["stream"] * 3, "graph pool=7"] * 2


def test_a_cpu_runs_one_pass_at_a_time() -> None:
    """A CPU runs one pass at a time, because a second one would delay the answer of the first."""
    assert [stream_of(torch.device(name)).depth for name in ("cpu", "cuda")] == [1, 2]
