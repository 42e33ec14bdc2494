"""The benchmark's verdicts: each goal is met or missed by its bound at each of its cases."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def goals(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module that judges."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import handler_goals  # the folder is no package
    import handler_load

    handler_goals.Sample = handler_load.Sample
    yield handler_goals
    for name in ("handler_goals", "handler_load"):
        sys.modules.pop(name)


def sample(goals: Any, items: int, latency_s: float, sequences_per_pass: int = 10) -> Any:
    """Return a sample with this number of items per second, each answered after the same time."""
    return goals.Sample([latency_s] * 100, items=items, seconds=1.0, passes=10, sequences=10 * sequences_per_pass)


def results(goals: Any, **batched: Any) -> Any:
    """Return results of all cases, with a stock handler of 100 items/s and 1 s."""
    return {case: {"stock": sample(goals, 100, 1.0)} | batched for case in goals.CASES}


def test_a_handler_that_reaches_everything_misses_nothing(goals: Any) -> None:
    """Each goal is judged in both number formats, at the cases that it is for."""
    good = {name: sample(goals, 201, 0.09) for name in ("fp32", "bf16")}
    lines = goals.verdicts(results(goals, **good))
    assert len(lines) == 2 * (4 + 1 + 2 + 2)
    assert all(met and line.startswith("met") for met, line in lines)


@pytest.mark.parametrize(
    ("given", "missed"),
    [
        ({"items": 131, "latency_s": 0.1}, {"p99, 8 clients"}),
        ({"items": 129, "latency_s": 0.09}, {"items/s, 32 clients, mixed"}),
        ({"items": 94, "latency_s": 0.09}, {"items/s, 32 clients, mixed", "items/s, one client"}),
        ({"items": 131, "latency_s": 0.09, "sequences_per_pass": 7}, {"sequences a pass, 32 clients"}),
    ],
)
def test_what_is_missed_is_told_apart(goals: Any, given: dict[str, Any], missed: set[str]) -> None:
    """A value at its bound meets a goal with "at least", and misses a goal with "under"."""
    lines = goals.verdicts(results(goals, fp32=sample(goals, **given)))
    assert {goal for goal in missed for met, line in lines if goal in line and not met} == missed
    assert all(met or any(goal in line for goal in missed) for met, line in lines)


def test_a_format_that_the_processor_lacks_is_not_judged(goals: Any) -> None:
    """Goals for bf16 are only judged on a processor with native bf16."""
    assert not [line for _, line in goals.verdicts(results(goals, fp32=sample(goals, 200, 0.01))) if "bf16" in line]


def test_p99_turns_show_who_is_left_waiting(goals: Any) -> None:
    """A p99 shows if five of eight clients wait for the whole measurement."""
    for case in goals.CASES:
        assert (case.calls is not None) is (case.clients == 8)
        if case.calls:
            turn = goals.Sample([0.1] * (case.calls - 5) + [10.0] * 5, items=1, seconds=1.0)
            assert turn.percentile(99) == 10_000
