"""The benchmark of many models in one engine process runs from end to end, and judges its rounds."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cohost.handler

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDLER = Path(cohost.handler.__file__).parent
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MODULES = ("shared", "shared_fleets", "shared_goals", "handler_load", "handler_models")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The benchmark as a module, whose servers have imported torch before they start a worker."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    module = importlib.import_module("shared")
    monkeypatch.setattr("shared_fleets.ENVIRONMENT", {"SAGEMAKER_MULTI_MODEL": "true"})
    yield module
    for name in MODULES:
        sys.modules.pop(name, None)


def test_all_fleets_are_measured_and_judged(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Loads, memory and turns of each fleet, in one JSON file and in tables, and the goals' verdicts as exit code."""
    # GIVEN
    monkeypatch.setattr("shared_fleets.past_handler", lambda _: HANDLER)
    monkeypatch.setattr("shared_goals.MODELS", 2)
    small = ["--rounds", "1", "--models", "1,2", "--clients", "1,2", "--seconds", "0.2", "--limit-mib", "100000"]
    model = ["--layers", "1", "--hidden", "32", "--vocabulary", "2000"]
    files = ["--log", str(tmp_path / "server.log"), "--output", str(tmp_path / "figures.json")]
    monkeypatch.setattr(sys, "argv", ["shared.py", *small, *model, *files])
    # WHEN
    with pytest.raises(SystemExit) as ended:
        benchmark.main()
    # THEN
    figures = json.loads((tmp_path / "figures.json").read_text())
    fleets = [benchmark.SHARED, benchmark.PROXIED, benchmark.PAST, benchmark.STOCK]
    assert list(figures["loads"][0]) == fleets
    assert all(len(loads["seconds"]) == 2 for loads in figures["loads"][0].values())
    assert len(figures["turns"][0]) == len(fleets) * 4
    assert {fleet: limited["survived"] for fleet, limited in figures["limit"].items()} == {
        benchmark.SHARED: True,
        benchmark.PAST: True,
    }
    printed = capsys.readouterr().out
    assert all(printed.count(f"\n{fleet} ") >= 6 for fleet in fleets)
    assert "MISSED  2 models work within the memory limit" in printed
    assert ended.value.code == 1


def results_with(benchmark: Any, *rates: float) -> Any:
    """Results of as many rounds, in which the engine process answers so many items per second, and workers 100."""
    turns = [
        {
            benchmark.turn_name(fleet, 6, 16): benchmark.Turn(rate=fleet_rate, p50=1.0, p99=1.0, cpu_ms=1.0)
            for fleet, fleet_rate in ((benchmark.SHARED, rate), (benchmark.PAST, 100.0))
        }
        for rate in rates
    ]
    return benchmark.Results(weights_mib=1.0, turns=turns)


@pytest.mark.parametrize(
    ("rates", "word", "missed"),
    [((120.0, 90.0, 130.0), "met", False), ((90.0, 80.0, 120.0), "open", False), ((90.0, 80.0, 109.0), "MISSED", True)],
)
def test_a_goal_is_missed_only_if_every_round_misses_it(
    benchmark: Any, rates: tuple[float, ...], word: str, *, missed: bool
) -> None:
    """The median decides between met and open; only an interval wholly on the wrong side fails the run."""
    verdicts = importlib.import_module("shared_goals").verdicts(results_with(benchmark, *rates), [6], [16])
    (verdict,) = [one for one in verdicts if "16 clients: items/s" in one.line]
    assert (verdict.line.split()[0], verdict.missed) == (word, missed)


def test_a_fleet_that_passes_the_memory_limit_is_killed(benchmark: Any, tmp_path: Path) -> None:
    """The run ends as in a container whose memory is limited: the server is killed, and not all models are loaded."""
    options = benchmark.command_line().parse_args(["--models", "2", "--layers", "1", "--hidden", "32"])
    options.vocabulary, options.limit_mib, options.fleets = 2000, 1, [benchmark.SHARED]
    options.log = tmp_path / "server.log"
    fleets = benchmark.write_fleets(tmp_path, options)
    limited = asyncio.run(benchmark.measure_limited(fleets[benchmark.SHARED], tmp_path, options))
    assert not limited.survived
    assert limited.models < 2
    assert limited.peak_mib > 1
