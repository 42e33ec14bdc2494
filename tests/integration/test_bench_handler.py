"""The handlers' benchmark runs to its end on a CPU, and with a simulated GPU."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MODULES = ("handler", "handler_goals", "handler_load", "handler_models")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The benchmark as a module, with two small cases."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    module = importlib.import_module("handler")
    monkeypatch.setattr(module, "CASES", [module.Case(8, 1, mixed=True), module.Case(32, 1, mixed=False)])
    monkeypatch.setattr("handler_goals.CALLS_FOR_P99", {True: 40})
    monkeypatch.setattr(module, "GEMM_SECONDS", 0.01)
    monkeypatch.setattr(module, "half_types", lambda _: [])
    yield module
    for name in MODULES:
        sys.modules.pop(name)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_both_handlers_are_measured_and_judged(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, device: str
) -> None:
    """The benchmark prints a line per handler and case, the share of the device's rate, and verdicts.

    For a GPU the CPU stands in where a device is named; the copy of the stock handler and all else are as there.
    """
    # GIVEN
    write, rate = benchmark.write_model, benchmark.gemm_rate
    on_cpu = {"device": "cpu"}
    monkeypatch.setattr(
        benchmark,
        "write_model",
        lambda *place, **options: write(*place, **options | (on_cpu if "device" in options else {})),
    )
    monkeypatch.setattr(benchmark, "gemm_rate", lambda _, dtype: rate("cpu", dtype))
    small = ["--layers", "1", "--hidden", "32", "--seconds", "0.2", "--log", str(tmp_path / "server.log")]
    monkeypatch.setattr(sys, "argv", ["handler.py", "--device", device, *small])
    # WHEN
    with pytest.raises(SystemExit) as ended:
        benchmark.main()
    # THEN
    lines = capsys.readouterr().out.splitlines()
    measured = [line for line in lines if "items/s  p50" in line]
    handlers = ["stock", "fp32", "fp32-1-thread"] if device == "cpu" else ["stock", "fp32"]
    assert [line.split()[3] for line in measured] == handlers * 2
    assert sum("TFLOP/s measured for GEMM" in line for line in lines) == 1
    verdicts = [line for line in lines if line.startswith(("met", "MISSED"))]
    assert bool(verdicts) is (device == "cpu")
    assert ended.value.code == any(line.startswith("MISSED") for line in verdicts)
