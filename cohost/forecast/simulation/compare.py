"""Replay a trace for every topology, kind of caller and combination of settings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cohost.forecast.simulation.replay import replay
from cohost.forecast.simulation.rules import bound_changes
from cohost.routing import MULTI_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cohost.forecast.pricing.price_list import Price
    from cohost.forecast.pricing.running_hours import Service
    from cohost.forecast.simulation.outcome import Outcome
    from cohost.forecast.simulation.rules import Rules
    from cohost.forecast.simulation.traces import Trace


class Callers(StrEnum):
    """The behaviour of callers while no copy runs: their calls fail at once, they wait, or both are compared."""

    FAIL = "fail"
    WAIT = "wait"
    BOTH = "both"


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of a comparison: the outcome of a replay with one combination of settings.

    `settings` has the values that a sweep varies, by key of the catalog's scaling. `efficient` is True if the line is
    Pareto-optimal: no other line with the same kind of callers is better in cost or in lost calls without being worse
    in the other.
    """

    settings: Mapping[str, Any]
    outcome: Outcome
    efficient: bool

    @property
    def design(self) -> str:
        """Return the line's topology and its callers' behaviour at zero copies, as text."""
        if self.outcome.rules.topology == MULTI_MODEL:
            return MULTI_MODEL
        return f"{self.outcome.rules.topology}, {'wait' if self.outcome.patient else 'fail'}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All results for one trace. `swept` lists the keys of the settings for which several values are compared."""

    trace: Trace
    service: Service
    instance_type: str
    region: str
    price: Price | None
    swept: Sequence[str]
    results: Sequence[Result]

    @property
    def usd_per_hour(self) -> float | None:
        """Return the price of one instance in USD per hour; None if it is unknown."""
        return None if self.price is None else self.price.usd_per_hour

    def of_first_settings(self) -> list[Result]:
        """Return the results of the first combination of settings, one per topology and kind of caller."""
        first: dict[str, Result] = {}
        for result in self.results:
            first.setdefault(result.design, result)
        return list(first.values())


def replay_all(
    trace: Trace,
    combinations: Iterable[tuple[Mapping[str, Any], Sequence[Rules]]],
    service: Service,
    *,
    callers: Callers,
) -> Iterator[tuple[Mapping[str, Any], Outcome]]:
    """Yield the outcomes of each combination of settings: one per topology and kind of caller.

    A topology ignores some settings; combinations that differ only in ignored settings are yielded once for this
    topology, without these settings. A multi-model endpoint is replayed for one kind of caller, because it never has
    zero copies.
    """
    seen: set[Rules] = set()
    for settings, both in combinations:
        for rules in both:
            if rules in seen:
                continue
            seen.add(rules)
            unread = "idle_minutes" if rules.topology == MULTI_MODEL else None
            read = {name: value for name, value in settings.items() if name != unread}
            bounds = list(bound_changes(rules, trace))
            for patient in _patience(rules, callers):
                yield read, replay(trace, rules, service, patient=patient, bounds=bounds)


def marked(outcomes: Sequence[tuple[Mapping[str, Any], Outcome]]) -> list[Result]:
    """Return the outcomes as results, with the Pareto-optimal ones marked."""
    return [
        Result(settings=settings, outcome=one, efficient=not any(_beats(other, one) for _, other in outcomes))
        for settings, one in outcomes
    ]


def _beats(other: Outcome, one: Outcome) -> bool:
    """Return True if `other`, with the same kind of callers, beats `one` in cost or losses and is worse in neither."""
    if MULTI_MODEL not in {other.rules.topology, one.rules.topology} and other.patient != one.patient:
        return False
    theirs, own = ((x.instance_hours, x.unserved_share) for x in (other, one))
    return theirs != own and theirs[0] <= own[0] and theirs[1] <= own[1]


def _patience(rules: Rules, callers: Callers) -> Sequence[bool]:
    if rules.topology == MULTI_MODEL or callers is Callers.FAIL:
        return (False,)
    return (True,) if callers is Callers.WAIT else (False, True)
