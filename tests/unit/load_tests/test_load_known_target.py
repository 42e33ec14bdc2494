"""The numbers of a load test against targets whose latencies are known in closed form, in virtual time.

The bounds: numbers of a closed load are exact to a microsecond and one call per caller. Arrivals of an open load are
random, so its counts and percentiles have three standard deviations of their sampling.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fakes.virtual_load import START, Target, load

from cohost.report.samples import Outcome, answered, latency_s
from cohost.report.summary import summarise
from load_tests.payloads import Wanted, make_book

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fakes.virtual_load import Done

FAST_S, SLOW_S = 0.02, 0.2
CALLERS = (1, 8, 200)
OPEN = ((5, 20), (40, 160), (200, 200))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Done]:
    """Run a load test in virtual time, each in a folder of its own."""
    folders = iter(tmp_path / str(number) for number in range(100))
    return lambda target, *arguments, **changes: load(monkeypatch, next(folders), target, *arguments, **changes)


def percentiles(done: Done, step: int = 0) -> list[float]:
    """The p50, p90, p95 and p99 of a step, in seconds."""
    found = done.line(step).latency_ms
    assert found is not None
    return [value / 1000 for value in (found.p50, found.p90, found.p95, found.p99)]


def exactly(*seconds: float) -> Any:
    """These seconds to a microsecond: moments since the epoch are as exact as that."""
    return pytest.approx(list(seconds), abs=1e-6)


def due(done: Done, rate: float, seed: int = 1) -> list[float]:
    """The planned moments of the only measured phase, by the definition of a Poisson process."""
    ((index, phase),) = [(at, one) for at, one in enumerate(done.result.record.phases) if one.kind == "measured"]
    rng = random.Random(f"{seed} {index} 0")  # noqa: S311 - the load test's own generator
    at, found = phase.started, []
    while (at := at + rng.expovariate(rate)) <= phase.ended:
        found.append(at)
    return found


def slow_tenth(number: int, _: float) -> float:
    """Two kinds of calls: each tenth is slow."""
    return SLOW_S if number % 10 == 9 else FAST_S


@pytest.mark.parametrize("callers", CALLERS)
def test_a_closed_load_of_a_fixed_latency(run: Callable[..., Done], callers: int) -> None:
    """Every percentile is the latency, the rate is callers over latency, nothing fails and nothing is marked."""
    done = run(Target(), "-u", str(callers), "--measure", "2")

    line = done.line()
    assert (done.code, done.marks, line.failed) == (0, [], 0)
    assert percentiles(done) == exactly(*[FAST_S] * 4)
    assert line.calls_per_s == pytest.approx(callers / FAST_S, abs=callers / 2 + 1e-6)
    assert line.items_per_s == line.calls_per_s
    assert line.items_per_s_alone == pytest.approx(callers / FAST_S)
    assert line.cut_off == 0


@pytest.mark.parametrize(("rate", "users"), OPEN)
def test_a_healthy_open_load_is_valid(run: Callable[..., Done], rate: int, users: int) -> None:
    """Exit code 0, every due call sent at its moment and none reported as unsent, the rate of the planned moments."""
    done = run(Target(), "--rate", str(rate), "-u", str(users), "--measure", "10")

    line = done.line()
    assert (done.code, done.marks) == (0, [])
    assert (line.cut_off, line.failed) == (0, 0)
    assert percentiles(done) == exactly(*[FAST_S] * 4)
    assert done.result.of_phase(1)["planned"].tolist() == pytest.approx(due(done, rate), abs=1e-6)
    assert done.result.of_phase(1)["sent"].tolist() == pytest.approx(due(done, rate), abs=1e-6)
    assert line.calls_per_s == pytest.approx(rate, abs=3 * math.sqrt(rate / 10))
    assert line.items_per_s_alone is None


def test_percentiles_of_evenly_spread_latencies(run: Callable[..., Done]) -> None:
    """1 to 100 ms twice, in turns: each percentile is the one of numpy's definition, linear between two values."""
    done = run(Target(lambda number, _: (number % 100 + 1) / 1000), "-u", "1", "--measure", "10.0995", "--skip-cold")

    assert done.line().answered == 200
    assert percentiles(done) == exactly(0.0505, 0.0901, 0.09505, 0.09901)


@pytest.mark.parametrize("callers", CALLERS)
def test_a_closed_load_of_two_latencies(run: Callable[..., Done], callers: int) -> None:
    """Each tenth call is slow: p50 is fast, p95 and p99 are slow, the rate is callers over the mean."""
    done = run(Target(slow_tenth), "-u", str(callers), "--measure", "4")

    p50, _, p95, p99 = percentiles(done)
    mean = 0.9 * FAST_S + 0.1 * SLOW_S
    assert [p50, p95, p99] == exactly(FAST_S, SLOW_S, SLOW_S)
    line = done.line()
    assert line.latency_ms is not None
    assert line.latency_ms.mean / 1000 == pytest.approx(mean, rel=0.03)
    assert line.calls_per_s == pytest.approx(callers / mean, rel=0.05)
    assert (done.code, done.marks) == (0, [])


@pytest.mark.parametrize(("rate", "users"), OPEN)
def test_an_open_load_of_two_latencies(run: Callable[..., Done], rate: int, users: int) -> None:
    """The same percentiles as in a closed load, at the planned rate."""
    done = run(Target(slow_tenth), "--rate", str(rate), "-u", str(users), "--measure", "20")

    p50, _, p95, p99 = percentiles(done)
    assert [p50, p95, p99] == exactly(FAST_S, SLOW_S, SLOW_S)
    assert done.line().calls_per_s == pytest.approx(rate, abs=3 * math.sqrt(rate / 20) + 1)
    assert (done.code, done.line().cut_off) == (0, 0)


def freezing(from_s: float, to_s: float) -> Callable[[int, float], float]:
    """A target that answers nothing between two moments of the run, and then all calls at once."""
    return lambda _, at: max(FAST_S, to_s - at if at >= from_s else 0)


@pytest.mark.parametrize(("users", "rate"), [(400, 40), (2, 40), (200, 20)])
def test_an_open_load_shows_a_freeze_to_every_call_that_was_due_in_it(
    run: Callable[..., Done], users: int, rate: int
) -> None:
    """Three of ten seconds frozen: a call due t seconds into them waits 3 - t seconds, also one that nobody could send.

    With two callers the backlog of 3 x rate calls is sent at 2 / latency calls a second, so each later call waits by
    its place in the backlog longer.
    """
    seconds, frozen = 10.0, 3.0
    done = run(Target(freezing(2, 2 + frozen)), "--rate", str(rate), "-u", str(users), "--measure", "10", "--skip-cold")

    drained = 1 - (rate * FAST_S / users if users < rate * frozen else 0)
    p50, p90, p95, p99 = percentiles(done)
    sampling = 3 * seconds * np.sqrt(np.array([0.09, 0.0475, 0.0099]) / (rate * seconds))
    expected = [frozen - drained * seconds * (1 - q) for q in (0.9, 0.95, 0.99)]
    assert (abs(np.array([p90, p95, p99]) - expected) <= sampling).all()
    assert p99 <= frozen + FAST_S
    assert p50 < 1
    line = done.line()
    assert line.latency_ms is not None
    # Without the planned moments two callers would see two slow calls in 400, a mean of some 35 ms.
    assert line.latency_ms.mean > 1000 * 0.7 * frozen**2 / 2 / seconds
    if users > 2:
        waits = [max(FAST_S, 5 - (at - START) if at - START >= 2 else 0) for at in due(done, rate)]
        assert latency_s(done.result.samples).tolist() == pytest.approx(waits, abs=1e-6)
    # Locust's own statistics count from the planned moment too.
    told = sorted(event["response_time"] / 1000 for event in done.events)
    assert told == pytest.approx(sorted(latency_s(answered(done.result.samples))), abs=1e-6)
    # The last calls of a backlog may still wait at the end, but nobody is told of calls that were not due.
    assert len(done.result.samples) == len(due(done, rate))


def test_a_closed_load_sees_a_freeze_once_per_caller(run: Callable[..., Done]) -> None:
    """Eight callers each wait once: the p50 does not show a freeze, the slowest call does."""
    done = run(Target(freezing(2, 5)), "-u", "8", "--measure", "10", "--skip-cold")

    slow = latency_s(answered(done.result.samples)) > 1
    assert int(slow.sum()) == 8
    assert percentiles(done)[0] == pytest.approx(FAST_S, abs=1e-6)
    assert done.line().latency_ms.most / 1000 == pytest.approx(3, abs=0.03)  # type: ignore[union-attr]


@pytest.mark.parametrize("arguments", [("-u", "1"), ("-u", "200"), ("--rate", "50", "-u", "100")])
def test_failures_are_counted_and_judged(run: Callable[..., Done], arguments: tuple[str, ...]) -> None:
    """Every fifth call fails: a fifth failed by status, the others' latency and rate, and exit code 3."""
    done = run(Target(fail_every=5), *arguments, "--measure", "3", "--skip-cold")

    line = done.line()
    assert line.failures == {"model error (503)": line.failed}
    assert abs(line.failed - line.calls / 5) <= 1
    assert percentiles(done) == exactly(*[FAST_S] * 4)
    assert line.calls_per_s == pytest.approx(0.8 * line.calls / 3, rel=0.03)
    assert (done.code, done.marks[-1]) == (3, "failures")
    names = {event["name"] for event in done.events}
    failed = [event for event in done.events if event["exception"] is not None]
    assert (names, len(done.events), len(failed)) == ({"stub"}, line.calls, line.failed)


@pytest.mark.parametrize(("warmup", "first"), [("3", FAST_S), ("0", 1.0)])
def test_a_slow_start_is_the_warm_ups(run: Callable[..., Done], warmup: str, first: float) -> None:
    """A target that takes a second per call in its first two seconds: a warm-up of three hides it, none shows it."""
    target = Target(lambda _, at: 1.0 if at < 2 else FAST_S)
    done = run(target, "-u", "8", "--warmup", warmup, "--measure", "5", "--skip-cold")

    line = done.line()
    assert line.latency_ms is not None
    assert line.latency_ms.most / 1000 == pytest.approx(first, abs=1e-6)
    assert percentiles(done)[0] == pytest.approx(FAST_S, abs=1e-6)
    assert len(done.events) == line.calls, "Locust's own statistics have the measured calls only"
    kinds = [phase.kind for phase in done.result.record.phases]
    assert kinds == (["warm-up", "measured"] if warmup != "0" else ["measured"])


def test_the_first_call_of_a_model_is_timed_by_itself(run: Callable[..., Done]) -> None:
    """A load of three seconds is the difference of first and second call, and in no other number."""
    done = run(Target(lambda number, _: 3 + FAST_S if number == 0 else FAST_S), "-u", "2", "--measure", "2")

    (cold,) = done.result.record.cold
    assert (cold.first_s, cold.second_s) == (pytest.approx(3 + FAST_S), pytest.approx(FAST_S))
    assert percentiles(done) == exactly(*[FAST_S] * 4)


@pytest.mark.parametrize("users", [2, 20, 200])
def test_an_overloaded_target_is_marked(run: Callable[..., Done], users: int) -> None:
    """A target of 50 calls a second with 100 planned: half are answered, and all due ones are counted."""
    done = run(Target(workers=1), "--rate", "100", "-u", str(users), "--measure", "8", "--skip-cold")

    line = done.line()
    assert line.calls_per_s == pytest.approx(50, rel=0.01)
    assert (done.code, done.marks) == (3, ["rate-not-reached"])
    planned = due(done, 100)
    assert done.result.samples["planned"].tolist() == pytest.approx(planned, abs=1e-6)
    unsent = int((done.result.samples["outcome"] == Outcome.UNSENT).sum())
    assert abs(unsent - (len(planned) - 50 * 8 - users)) <= 2
    assert line.cut_off == unsent
    # Each caller waits behind all others, and the backlog grows by 50 calls a second.
    assert percentiles(done)[3] > 3


@pytest.mark.parametrize(("rate", "load_share"), [(15, 0.3), (30, 0.6), (40, 0.8)])
def test_a_queue_below_its_capacity(run: Callable[..., Done], rate: int, load_share: float) -> None:
    """One worker of 20 ms and random arrivals: the mean wait of a queue M/D/1 is share x 20 ms / (2 x (1 - share))."""
    done = run(Target(workers=1), "--rate", str(rate), "-u", "200", "--measure", "300", "--skip-cold")

    line = done.line()
    assert line.latency_ms is not None
    expected = FAST_S + load_share * FAST_S / (2 * (1 - load_share))
    assert line.latency_ms.mean / 1000 == pytest.approx(expected, rel=0.12)
    assert (done.code, done.marks, line.cut_off) == (0, [], 0)


def test_a_silent_target_fails_at_the_time_out(run: Callable[..., Done]) -> None:
    """Nothing was answered: no rate, no latency, exit code 3, after the time-out of the calls under way."""
    done = run(Target(silent=True), "-u", "3", "--skip-cold", "--timeout", "1", "--measure", "4")

    line = done.line()
    assert (done.code, line.latency_ms, line.items_per_s) == (3, None, None)
    assert "no-answer" in done.marks
    assert line.failures == {"timed out": line.calls}
    assert line.calls == 3 * 4


@pytest.mark.parametrize(
    ("behaviour", "changes", "marks", "code"),
    [
        (FAST_S, {"cpu": 0.91}, ["generator-cpu"], 3),
        (FAST_S, {"cpu": 0.89}, [], 0),
        (FAST_S, {"late_s": 0.003}, ["generator-lag"], 3),
        (FAST_S, {"late_s": 0.0015}, [], 0),
        (0.2, {"late_s": 0.015}, [], 0),
        (0.2, {"late_s": 0.03}, ["generator-lag"], 3),
    ],
)
def test_a_generator_at_its_limit_is_marked(
    run: Callable[..., Done], behaviour: float, changes: dict[str, float], marks: list[str], code: int
) -> None:
    """More than nine tenths of its core, or later than 2 ms and a tenth of the median."""
    done = run(Target(lambda *_: behaviour), "-u", "4", "--measure", "5", **changes)

    assert (done.marks, done.code) == (marks, code)


@pytest.mark.parametrize(
    ("target", "arguments", "ends_after", "has_result"),
    [
        (Target(silent=True), ("--timeout", "60"), 2, False),
        (Target(), ("--warmup", "60"), 2, True),
        (Target(lambda *_: 5.0), ("--skip-cold", "--warmup", "3"), 2, True),
    ],
)
def test_an_end_before_the_measurement_is_no_success(
    run: Callable[..., Done],
    target: Target,
    arguments: tuple[str, ...],
    ends_after: float,
    has_result: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Locust's -t in the first call or in the warm-up: a message and exit code 3."""
    done = run(target, "-u", "2", "--measure", "5", *arguments, ends_after=ends_after)

    assert (done.code, done.run is not None) == (3, has_result)
    assert any("no-answer: the run ended before its first" in line for line in done.log)


@pytest.mark.parametrize("target", [Target(), Target(lambda *_: 0.5)])
def test_a_time_limit_ends_an_endless_step(run: Callable[..., Done], target: Target) -> None:
    """-t without --measure is the planned end: a valid run, whose calls under way are waited for."""
    done = run(target, "-u", "8", "--skip-cold", ends_after=5.25)

    line = done.line()
    assert (done.code, done.marks, line.cut_off) == (0, [], 0)
    assert line.calls % 8 == 0


def test_a_run_cut_short_says_so(run: Callable[..., Done]) -> None:
    """The second of two steps was not reached."""
    done = run(Target(), "-u", "1", "--sweep-batch", "1,8", "--measure", "5", "--skip-cold", ends_after=4)

    assert (done.code, done.marks) == (0, ["cut-short"])


def test_models_get_their_shares_and_their_own_rates(run: Callable[..., Done]) -> None:
    """Of a mix 3 to 1 each model has its share of the calls, its latency, and the rate of as many callers alone."""
    latencies = {"quick": 0.01, "slow": 0.03}
    target = Target()
    target.behaviour = lambda *_: latencies[target.bodies[-1][0].partition("model_name=")[2]]
    done = run(target, "--models", "quick=3,slow", "-u", "4", "--batch-size", "2", "--measure", "6")

    (step,) = summarise(done.result).steps
    quick, slow = step.models
    assert quick.calls / slow.calls == pytest.approx(3, rel=0.02)
    assert quick.latency_ms is not None
    assert slow.latency_ms is not None
    assert (quick.latency_ms.p50, slow.latency_ms.p99) == (pytest.approx(10, abs=1e-3), pytest.approx(30, abs=1e-3))
    # Four callers with two texts a call: 8 texts in 10 ms, or in 30 ms, if they called that model only.
    assert (quick.items_per_s_alone, slow.items_per_s_alone) == (pytest.approx(800), pytest.approx(800 / 3))
    mixed = 4 * 2 / (0.75 * 0.01 + 0.25 * 0.03)
    assert step.total.items_per_s == pytest.approx(mixed, rel=0.01)
    assert (quick.items_per_s or 0) + (slow.items_per_s or 0) == pytest.approx(step.total.items_per_s)


def test_callers_send_all_payloads_in_turn(run: Callable[..., Done]) -> None:
    """A caller sends all 32 bodies of its model before it sends one again, and two callers begin apart."""
    target = Target()
    run(target, "-u", "1", "--measure", "1.28", "--skip-cold")
    wanted = Wanted(seed=1, pad_to_max=False, max_length=None, texts=None, hubs=())
    book = {name: make_book(name, "text-classification", None, None, wanted, (1,)) for name in ("stub", "a", "b")}
    bodies = {name: Counter(payload.body for payload in one.payloads[1]) for name, one in book.items()}
    assert Counter(body for _, body in target.bodies[:32]) == Counter(body for _, body in target.bodies[32:64])
    assert Counter(body for _, body in target.bodies[:32]) == bodies["stub"]

    mixed = Target()
    run(mixed, "--models", "a,b", "-u", "2", "--measure", "3", "--skip-cold")
    for name in ("a", "b"):
        sent = {body for path, body in mixed.bodies if path.endswith(f"={name}")}
        assert sent == bodies[name].keys()

    both = Target()
    run(both, "-u", "2", "--measure", "1", "--skip-cold")
    assert len({body for _, body in both.bodies[:2]}) == 2


def test_steps_of_a_sweep_are_measured_apart(run: Callable[..., Done]) -> None:
    """A latency that grows with the texts of a call: each step has its own, and batch efficiency is their ratio."""
    target = Target()

    def by_size(*_: float) -> float:
        inputs = json.loads(target.bodies[-1][1])["inputs"]
        return 0.01 + 0.0025 * (len(inputs) if isinstance(inputs, list) else 1)

    target.behaviour = by_size
    done = run(
        target, "-u", "2", "--sweep-batch", "1,8", "--sweep-concurrency", "1,2", "--measure", "4", "--warmup", "1"
    )

    summary = summarise(done.result)
    assert [(step.batch, step.concurrency) for step in summary.steps] == [(1, 2), (8, 2), (1, 1)]
    assert [percentiles(done, index)[3] for index in range(3)] == exactly(0.0125, 0.03, 0.0125)
    rates = [step.total.items_per_s for step in summary.steps]
    assert rates == pytest.approx([2 / 0.0125, 16 / 0.03, 1 / 0.0125], rel=0.02)


def test_a_seed_repeats_a_run(run: Callable[..., Done]) -> None:
    """The same moments and bodies with the same seed, others with another."""
    targets = [Target(), Target(), Target()]
    runs = [
        run(target, "--rate", "30", "--measure", "4", "--skip-cold", "--seed", seed)
        for target, seed in zip(targets, ("7", "7", "8"), strict=True)
    ]
    moments = [(done.result.samples["planned"] - START).tolist() for done in runs]
    assert moments[0] == moments[1]
    assert moments[0] != moments[2]
    assert targets[0].bodies == targets[1].bodies
    assert targets[0].bodies != targets[2].bodies
