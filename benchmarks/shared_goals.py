"""The goals of one engine process with many models, as ratios to as many batched workers, and their verdicts.

A goal has two bounds: one that must be kept, and one to aim at. Each measured ratio has one value per round. The
verdict is MISSED only if the values of all rounds are on the wrong side of the bound that must be kept. If the median
is on the wrong side, but not all values, the verdict is "open".
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared_fleets import PAST, PROXIED, SHARED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared import Loads, Results, Turn

MODELS = 6
ALONE, SOME, MANY = 1, 16, 64


@dataclass(frozen=True)
class Goal:
    """A goal: a bound that must be kept, and one to aim at; with `least`, greater values are better."""

    text: str
    must: float
    aim: float
    least: bool = False

    def keeps(self, value: float, bound: float) -> bool:
        """Return True if a value is on the right side of a bound."""
        return value >= bound if self.least else value <= bound


@dataclass(frozen=True)
class Verdict:
    """A goal's verdict: the line to print, and True if the bound that must be kept is missed in every round."""

    line: str
    missed: bool


def verdicts(results: Results, models: Sequence[int], clients: Sequence[int]) -> list[Verdict]:
    """Return the verdicts on all goals for which the results have values."""
    found = [*_load_goals(results), *_turn_goals(results, models, clients)]
    lines = [_verdict(goal, values) for goal, values in found if values]
    return [*lines, *_limit_verdict(results)]


def _verdict(goal: Goal, values: Sequence[float]) -> Verdict:
    middle = statistics.median(values)
    missed = not any(goal.keeps(value, goal.must) for value in values)
    kept = goal.keeps(middle, goal.must)
    word = "MISSED" if missed else "met" if kept else "open"
    sign = "at least" if goal.least else "at most"
    aim = "aim met" if goal.keeps(middle, goal.aim) else f"aim {goal.aim:g} is {abs(middle - goal.aim):.3g} away"
    interval = f"{middle:.3g} ({min(values):.3g} to {max(values):.3g})"
    return Verdict(f"{word:<7} {goal.text:<62} {interval:<26} must be {sign} {goal.must:g}; {aim}", missed)


def _load_goals(results: Results) -> list[tuple[Goal, list[float]]]:
    rounds = [
        (loads[SHARED], loads[PAST])
        for loads in results.loads
        if {SHARED, PAST} <= loads.keys() and MODELS in loads[SHARED].memory
    ]
    beyond = [
        (own.memory[MODELS]["pss"] - own.memory[1]["pss"]) / (MODELS - 1) - results.weights_mib
        for own, _ in rounds
        if 1 in own.memory
    ]
    return [
        (
            Goal(f"PSS of all Python processes, {MODELS} models", 0.36, 0.31),
            [own.memory[MODELS]["pss"] / past.memory[MODELS]["pss"] for own, past in rounds],
        ),
        (Goal("each further model: MiB beyond its weights", 40.0, 25.0), beyond),
        (Goal("each further model: load time", 0.45, 0.3), [_further(own) / _further(past) for own, past in rounds]),
    ]


def _further(loads: Loads) -> float:
    return statistics.median(loads.seconds[1:MODELS])


def _turn_goals(results: Results, models: Sequence[int], clients: Sequence[int]) -> list[tuple[Goal, list[float]]]:
    def ratios(fleet: str, figure: Callable[[Turn], float], at: tuple[int, int]) -> list[float]:
        names = [f"{name} | {at[0]} | {at[1]}" for name in (fleet, PAST)]
        pairs = [tuple(turns.get(name) for name in names) for turns in results.turns]
        return [figure(own) / figure(past) for own, past in pairs if own is not None and past is not None]

    def rate(turn: Turn) -> float:
        return turn.rate

    def p99(turn: Turn) -> float:
        return turn.p99

    def cpu(turn: Turn) -> float:
        return turn.cpu_ms

    given: list[tuple[Goal, list[float]]] = [
        (Goal(f"1 client over {MODELS} models: items/s", 0.95, 1.0, least=True), ratios(SHARED, rate, (MODELS, ALONE))),
        (Goal("16 clients: items/s", 1.10, 1.2, least=True), ratios(SHARED, rate, (MODELS, SOME))),
        (Goal("16 clients: p99", 0.75, 0.65), ratios(SHARED, p99, (MODELS, SOME))),
        (Goal("16 clients: CPU per item", 0.80, 0.7), ratios(SHARED, cpu, (MODELS, SOME))),
        (Goal("64 clients: items/s", 1.15, 1.3, least=True), ratios(SHARED, rate, (MODELS, MANY))),
    ]
    for count in models:
        for crowd in clients:
            where = f"batched behind its proxy, {count} models, {crowd} clients"
            given += [
                (Goal(f"{where}: items/s", 0.95, 1.0, least=True), ratios(PROXIED, rate, (count, crowd))),
                (Goal(f"{where}: p99", 1.2, 1.0), ratios(PROXIED, p99, (count, crowd))),
            ]
    return given


def _limit_verdict(results: Results) -> list[Verdict]:
    if not {SHARED, PAST} <= results.limit.keys():
        return []
    own, past = results.limit[SHARED], results.limit[PAST]
    met = own.survived and not past.survived
    line = f"{own.models} models work within the memory limit, and as many batched workers do not"
    return [Verdict(f"{'met' if met else 'MISSED':<7} {line}", not met)]
