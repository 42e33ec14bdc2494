"""A short form of `make drills`: engine processes that die, hang or lose their device cost no call."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MODULES = ("drills", "handler_load", "handler_models", "shared_fleets")


@pytest.fixture
def drills(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The drills as a module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield importlib.import_module("drills")
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("handler", ["shared", "batched"])
def test_no_fault_of_an_engine_process_costs_a_call(drills: Any, handler: str, tmp_path: Path) -> None:
    """Each drill once, with two models: all calls get 200, but for the one that kills its process; nothing is left."""
    short = ["--models", "2", "--clients", "8", "--times", "1", "--seconds", "0.2", "--load-rounds", "2"]
    options = drills.command_line().parse_args(short)
    # An engine process removes the files of those before it after 10 s.
    options.idle_s, options.log = 12.0, tmp_path / "container.log"
    results = asyncio.run(drills.run_drills(handler, options))
    assert [result.drill for result in results] == list(drills.DRILLS)
    assert not [fault for result in results for fault in result.faults], (tmp_path / "container.log").read_text()
    answered = {result.drill: set(result.calls) for result in results}
    assert answered == {name: {200} for name in ("kill", "hang", "lose_device", "poison", "rounds")} | {"end": set()}
    assert all(result.pings[True] for result in results)


def test_a_call_that_fails_is_a_fault_of_the_drill(drills: Any, tmp_path: Path) -> None:
    """The drills notice a model that answers no call, and a socket that stays."""

    async def run() -> Any:
        result = drills.Result("kill", "shared")
        async with drills.site(tmp_path, "shared", 1, tmp_path / "container.log") as running:
            running.names = ["model-0", "missing"]
            async with running.under_load(result, 2):
                await drills.eventually(lambda: asyncio.sleep(0, result.calls[404] > 0), "a call failed", result)
        return result

    result = asyncio.run(run())
    assert result.calls[404]
    assert result.faults
    assert result.line.startswith("FAILED")
