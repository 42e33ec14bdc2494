"""The GPU memory of one of several processes: a limit by the plan, and memory that is returned when idle."""

from __future__ import annotations

import asyncio
import logging
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from handler_calls import MINILM, properties, served

from cohost.handler import cohost_device
from cohost.handler.cohost_device import DeviceMemory
from cohost.handler.cohost_options import read_options

if TYPE_CHECKING:
    from handler_calls import Caller

MIB = 1024 * 1024
GPU = torch.device("cuda", 0)
CONTEXT = 443


class FakeCard:
    """A GPU of 10,000 MiB, with its reserved memory, limit, and number of returns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reserved_mib: int) -> None:
        self.reserved_mib = reserved_mib
        self.limit_mib: float | None = None
        self.freed = 0
        self.now = 0.0
        properties = SimpleNamespace(total_memory=10_000 * MIB)
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: self.reserved_mib * MIB)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", self._limit)
        monkeypatch.setattr(cohost_device, "free_device_memory", self._free)
        monkeypatch.setattr(cohost_device, "time", SimpleNamespace(monotonic=lambda: self.now))

    def _limit(self, fraction: float, _: torch.device) -> None:
        assert 0.0 <= fraction <= 1.0
        self.limit_mib = fraction * 10_000

    def _free(self) -> None:
        self.freed += 1


@pytest.mark.parametrize(
    ("planned_mib", "reserved_mib", "limit_mib"),
    [
        (1443, 800, 1100),
        (1443, 2000, 2200),
        (200, 800, 880),
        (20_000, 800, 10_000),
        (None, 800, None),
    ],
)
def test_the_limit_is_the_plan_but_never_below_what_the_load_took(
    monkeypatch: pytest.MonkeyPatch, planned_mib: int | None, reserved_mib: int, limit_mib: float | None
) -> None:
    """The memory limit is the plan's with a tenth more, never below that of the load; without a plan there is none."""
    card = FakeCard(monkeypatch, reserved_mib)
    DeviceMemory(GPU, planned_mib).settle()
    assert card.limit_mib == (None if limit_mib is None else pytest.approx(limit_mib))


def test_a_load_beyond_its_plan_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names a load that takes more memory than its plan, because other models need that memory."""
    card = FakeCard(monkeypatch, 1200)
    DeviceMemory(GPU, 1000 + CONTEXT).settle()
    assert "took 1200 MiB of the GPU on load, and 1000 MiB are planned" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        card.reserved_mib = 900
        DeviceMemory(GPU, 1000 + CONTEXT).settle()
    assert not caplog.messages


def test_memory_beyond_that_of_warm_up_goes_back_when_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory above that of the warm-up is returned once after ten seconds without a pass."""
    card = FakeCard(monkeypatch, 800)
    memory = DeviceMemory(GPU, None)
    memory.settle()
    card.reserved_mib = 900
    for second in range(40):
        card.now = float(second)
        memory.tick(passes=second)
    assert card.freed == 0
    for second in range(40, 52):
        card.now = float(second)
        memory.tick(passes=39)
    assert card.freed == 1
    card.reserved_mib = 800
    for second in range(52, 100):
        card.now = float(second)
        memory.tick(passes=39)
    assert card.freed == 1


def test_a_cpu_has_no_such_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the handler sets no limit of GPU memory, whatever the catalog states."""
    card = FakeCard(monkeypatch, 800)
    memory = DeviceMemory(torch.device("cpu"), 1000)
    memory.settle()
    card.now = 100.0
    memory.tick(0)
    assert (card.limit_mib, card.freed) == (None, 0)


def test_a_served_model_is_held_to_its_plan_and_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is set once, after warm-up, and the thread that watches the passes looks at the memory."""
    settled: list[int | None] = []
    passes: list[int] = []
    looked = threading.Event()

    def tick(_: DeviceMemory, count: int) -> None:
        passes.append(count)
        if count == 1:
            looked.set()

    monkeypatch.setattr(DeviceMemory, "settle", lambda memory: settled.append(memory._planned))
    monkeypatch.setattr(DeviceMemory, "tick", tick)

    async def scenario(call: Caller) -> None:
        assert (await call({"inputs": "a"})).status == 200
        assert await asyncio.to_thread(looked.wait, 60)

    given = {"gpu.required_memory_mb": 1000, "reserved_memory_mb": CONTEXT}
    served(properties(MINILM, pass_timeout_s=1) | {name: str(value) for name, value in given.items()}, scenario)
    assert settled == [1000 * MIB]


@pytest.mark.parametrize(
    ("given", "planned_mib"),
    [
        ({"gpu.required_memory_mb": "1024", "reserved_memory_mb": "512"}, 1536),
        ({"gpu.required_memory_mb": "2048", "reserved_memory_mb": "1024", "gpu.maxWorkers": "2"}, 1536),
        ({"gpu.required_memory_mb": "1024"}, None),
        ({"required_memory_mb": "1024", "reserved_memory_mb": "512"}, None),
        ({}, None),
    ],
)
def test_the_plan_comes_with_the_first_call(given: dict[str, Any], planned_mib: int | None) -> None:
    """The memory plan comes from the properties of the first call; half of the keys is no plan."""
    options = read_options({"model_dir": "/m", **given})
    assert options.planned_mib == planned_mib
    assert options == read_options({"model_dir": "/m"}), "a load that began early would be thrown away"
