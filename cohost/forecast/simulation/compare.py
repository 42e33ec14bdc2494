"""A trace replayed for every topology, kind of caller and combination of settings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cohost.forecast.simulation.replay import replay
from cohost.forecast.simulation.rules import bound_changes
from cohost.routing import MULTI_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cohost.catalog.sections.scaling import ScheduledScaling
    from cohost.forecast.pricing.price_list import Price
    from cohost.forecast.pricing.running_hours import Service
    from cohost.forecast.simulation.outcome import Outcome
    from cohost.forecast.simulation.rules import Rules
    from cohost.forecast.simulation.traces import Trace


class Callers(StrEnum):
    """What a caller does that meets no copy: it fails at once, it waits for one, or both are compared."""

    FAIL = "fail"
    WAIT = "wait"
    BOTH = "both"


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of a comparison. `settings` are the values that a sweep varies, by key; None of a price is unknown.

    `efficient`: no other line with such callers costs less, or as little, and serves more calls at once.
    """

    settings: Mapping[str, Any]
    outcome: Outcome
    efficient: bool

    @property
    def design(self) -> str:
        """The topology, and what callers do at zero copies."""
        if self.outcome.rules.topology == MULTI_MODEL:
            return MULTI_MODEL
        return f"{self.outcome.rules.topology}, {'wait' if self.outcome.patient else 'fail'}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All results for one trace, and what an instance costs there."""

    trace: Trace
    service: Service
    instance_type: str
    region: str
    price: Price | None
    swept: Sequence[str]
    results: Sequence[Result]

    @property
    def usd_per_hour(self) -> float | None:
        """The price of an instance; None where it is unknown."""
        return None if self.price is None else self.price.usd_per_hour

    def of_first_settings(self) -> list[Result]:
        """The results of the first combination of settings: one for each topology and kind of caller."""
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
    due: Callable[[ScheduledScaling], Iterator[float]],
) -> Iterator[tuple[Mapping[str, Any], Outcome]]:
    """Yield what each combination of settings comes to, one topology and kind of caller after another.

    Combinations that differ only in what a topology does not read are one to it, and yielded once, without that.

    Args:
        trace: the calls.
        combinations: settings that a sweep varies, and with them the rules of each topology.
        service: the figures of a copy.
        callers: what callers do at zero copies; it makes no difference to a multi-model endpoint.
        due: the seconds of the trace at which an entry of a schedule is due, in order.
    """
    seen: set[Rules] = set()
    for settings, both in combinations:
        for rules in both:
            if rules in seen:
                continue
            seen.add(rules)
            read = {name: value for name, value in settings.items() if name not in _unread(rules)}
            bounds = list(bound_changes(rules, _by_time(rules.schedule, due)))
            for patient in _patience(rules, callers):
                yield read, replay(trace, rules, service, patient=patient, bounds=bounds)


def _unread(rules: Rules) -> Sequence[str]:
    return ("idle_minutes",) if rules.topology == MULTI_MODEL else ()


def marked(outcomes: Sequence[tuple[Mapping[str, Any], Outcome]]) -> list[Result]:
    """The outcomes as results, those marked that no other beats."""
    return [
        Result(settings=settings, outcome=one, efficient=not any(_beats(other, one) for _, other in outcomes))
        for settings, one in outcomes
    ]


def _beats(other: Outcome, one: Outcome) -> bool:
    """Whether another, of callers that behave the same, is no worse in cost and in serving, and better in one."""
    if MULTI_MODEL not in {other.rules.topology, one.rules.topology} and other.patient != one.patient:
        return False
    theirs, own = ((x.instance_hours, x.unserved_share) for x in (other, one))
    return theirs != own and theirs[0] <= own[0] and theirs[1] <= own[1]


def _patience(rules: Rules, callers: Callers) -> Sequence[bool]:
    if rules.topology == MULTI_MODEL or callers is Callers.FAIL:
        return (False,)
    return (True,) if callers is Callers.WAIT else (False, True)


def _by_time(
    schedule: Sequence[ScheduledScaling], due: Callable[[ScheduledScaling], Iterator[float]]
) -> Iterator[tuple[float, ScheduledScaling]]:
    """The entries of a schedule whenever they are due, in order of time."""
    times = [(at, index) for index, entry in enumerate(schedule) for at in due(entry)]
    return ((at, schedule[index]) for at, index in sorted(times))
