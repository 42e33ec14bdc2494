"""The properties that every replay has, whatever the traffic and the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from simulation_cases import multi, trace, zero

from cohost.forecast.pricing.running_hours import Service
from cohost.forecast.simulation.replay import replay

if TYPE_CHECKING:
    from cohost.forecast.simulation.rules import Rules

SERVICE = Service()
STRETCHES = st.lists(st.tuples(st.integers(0, 40), st.sampled_from((0, 1, 30, 600, 2300, 2400, 9000))), max_size=8)
METRICS = st.sampled_from((("concurrency", 4.0), ("concurrency", 0.5), ("invocations", 300.0), ("invocations", 5.0)))


def counts_of(stretches: list[tuple[int, int]]) -> list[int]:
    """Return calls per minute from stretches of minutes with equal numbers."""
    return [calls for minutes, calls in stretches for _ in range(minutes)] or [0]


@st.composite
def any_rules(draw: st.DrawFn) -> Rules:
    """Return rules of either topology within their bounds."""
    least = draw(st.integers(0, 2))
    most = draw(st.integers(max(1, least), 4))
    metric, target = draw(METRICS)
    common = {"metric": metric, "target": target, "max": most}
    common |= {
        "scale_in_cooldown": draw(st.sampled_from((0, 300))),
        "scale_out_cooldown": draw(st.sampled_from((0, 900))),
    }
    if draw(st.booleans()):
        return zero(min=least, start=max(1, least), idle_minutes=draw(st.sampled_from((None, 1, 10))), **common)
    return multi(min=max(1, least), start=max(1, least), **common)


@settings(max_examples=150, deadline=None)
@given(STRETCHES, any_rules(), st.booleans())
def test_every_call_has_one_end_and_capacity_stays_in_its_bounds(
    stretches: list[tuple[int, int]],
    rules: Rules,
    patient: bool,  # noqa: FBT001 - drawn by hypothesis
) -> None:
    """Each call has one outcome, and instances and cost stay within the bounds."""
    found = replay(trace(counts_of(stretches)), rules, SERVICE, patient=patient)
    tally = found.tally
    assert tally.answered + tally.refused + tally.timed_out + found.unanswered == found.trace.calls
    assert sum(tally.lost.values()) == tally.refused + tally.timed_out
    assert sum(tally.steady.values()) + sum(tally.waits.values()) == tally.answered
    assert sum(tally.delays.values()) == sum(tally.late.values()) == tally.delayed
    assert all(rules.min <= copies <= rules.max for _, copies in found.desired)
    hours = found.trace.seconds / 3600
    assert rules.min * hours - 1e-6 <= found.instance_hours <= rules.max * hours + 1e-6


@settings(max_examples=60, deadline=None)
@given(STRETCHES, any_rules())
def test_without_zero_copies_nothing_is_refused_and_nothing_wakes(
    stretches: list[tuple[int, int]], rules: Rules
) -> None:
    """If one instance always serves, calls can queue and time out, but none is rejected and none wakes a copy."""
    found = replay(trace(counts_of(stretches)), rules, SERVICE)
    if rules.min:
        assert (found.tally.refused, found.tally.delayed, found.cold_starts) == (0, 0, 0)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 4), st.sampled_from((None, 1, 10)))
def test_an_idle_trace_costs_at_most_the_deploy_and_its_tail(minutes: int, start: int, idle: int | None) -> None:
    """Without calls copies end after at most 15 minutes, and their instances 12 minutes later."""
    found = replay(trace([0] * minutes), zero(max=4, start=start, idle_minutes=idle), SERVICE)
    assert found.instance_hours <= start * 27 / 60 + 1e-9


@settings(max_examples=150, deadline=None)
@given(STRETCHES, st.data())
def test_more_calls_save_at_most_the_starts_that_they_spare(
    stretches: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Additional calls lower the cost at most by the starts that they avoid.

    A start that comes earlier may end earlier too, by the minutes in which the alarms of waking and of sleeping look.
    """
    counts = counts_of(stretches)
    more = list(counts)
    for minute in data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=5)):
        more[minute] += 1
    few, many = (replay(trace(one), zero(), SERVICE) for one in (counts, more))
    spared = max(few.cold_starts - many.cold_starts, 0) * SERVICE.wake_s / 3600
    looks = 2 * max(many.cold_starts, 1) / 60
    assert many.instance_hours >= few.instance_hours - spared - looks - 1e-9
