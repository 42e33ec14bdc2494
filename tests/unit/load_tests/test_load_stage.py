"""Turns, shares and planned moments."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from load_tests import stage
from load_tests.recorder import Recorder
from load_tests.stage import Cue, Stage, deck, now, poisson, shares


def cue(callers: int = 2, rate: float | None = None) -> Cue:
    """A measured phase."""
    return Cue(phase=3, kind="measured", name="b1", batch=1, callers=callers, rate=rate, rank=0, seed=1)


def test_only_as_many_users_as_the_step_has_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a step of two callers the third user waits."""
    monkeypatch.setattr(stage, "WAIT_S", 0.01)
    here = Stage()
    assert here.wait(0) is None

    here.begin(cue(callers=2))

    assert here.wait(0) is here.wait(1) is here.phase
    assert here.wait(2) is None


def test_moments_that_nobody_was_free_for_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Due calls for which no user was free are counted as missing."""
    here, started = Stage(), now()
    monkeypatch.setattr(stage, "now", lambda: started)
    here.begin(cue(rate=100.0))
    phase = here.phase
    assert phase is not None
    taken = [phase.next_due() for _ in range(10)]
    phase.pending.append(started)
    monkeypatch.setattr(stage, "now", lambda: started + 2)

    missed = here.end()

    assert missed[0] == started
    assert len(missed) == pytest.approx(190, abs=45)
    assert all(a is not None and a < b for a, b in zip(taken, missed[1:], strict=False))
    assert here.end() == []


def test_a_closed_load_has_no_moments() -> None:
    """In a closed load calls are due when they are sent."""
    here = Stage()
    here.begin(cue())
    assert here.phase is not None

    assert here.phase.next_due() is None
    assert here.end() == []


def test_arrivals_are_a_poisson_process_and_reproducible() -> None:
    """The gaps between arrivals are exponential with the mean of the rate, and the seed fixes them."""
    gaps = np.diff(list(itertools.islice(poisson(50, "a"), 4000)))

    assert gaps.mean() == pytest.approx(0.02, rel=0.06)
    assert gaps.std() == pytest.approx(0.02, rel=0.1)
    again = np.diff(list(itertools.islice(poisson(50, "a"), 4000)))
    assert gaps == pytest.approx(again, abs=1e-6)


@pytest.mark.parametrize(
    ("callers", "users", "expected"),
    [(5, [3, 2], [3, 2]), (3, [3, 3], [2, 1]), (1, [4, 4], [1, 0]), (9, [2, 2], [2, 2]), (0, [1], [0]), (2, [], [])],
)
def test_callers_are_spread_over_the_processes_that_have_users(
    callers: int, users: list[int], expected: list[int]
) -> None:
    """Callers are spread evenly over the processes, up to the users of each."""
    assert shares(callers, users) == expected


def test_decks_hold_the_weights_in_short_phases() -> None:
    """With weights 3 and 1, three of every four calls go to the first model."""
    drawn = list(itertools.islice(deck([3, 1], "seed"), 40))

    assert all(Counter(drawn[at : at + 4]) == {0: 3, 1: 1} for at in range(0, 40, 4))
    assert drawn == list(itertools.islice(deck([3, 1], "seed"), 40))


def test_drain_waits_for_calls_under_way() -> None:
    """The end of a step waits for calls in progress, up to its limit."""
    here = Stage()
    assert here.drain(0)
    here.in_flight = 1
    assert not here.drain(0.02)


def test_what_workers_record_comes_together_in_order() -> None:
    """The calls of several processes are one array sorted by time, without duplicates."""
    worker, master = Recorder(), Recorder()
    worker.add((2.0, 2.0, 2.5, 1, 0, 8, 200, 0, 1))
    worker.tick((2.0, 1, 0.5, 0.001, 0.002))
    master.add((1.0, 1.0, 1.5, 0, 0, 1, 200, 0, 0))

    master.receive(worker.take())
    master.receive(worker.take())

    samples, ticks = master.all()
    assert samples["planned"].tolist() == [1, 2]
    assert samples["items"].tolist() == [1, 8]
    assert len(ticks) == 1
    master.clear()
    assert [len(part) for part in master.all()] == [0, 0]
