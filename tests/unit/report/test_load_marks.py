"""The marks of a load test whose numbers must not be used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from report_runs import calls, phase, record, target, ticks

from cohost.report.run import ColdCall, Price, Run
from cohost.report.samples import Outcome
from load_tests.result import exit_code, price_of
from load_tests.validity import marks_of

if TYPE_CHECKING:
    from cohost.report.run import Mark


def marks(run: Run, **changes: object) -> list[Mark]:
    """Return the marks of a completed load test without limits."""
    facts: dict[str, object] = {"complete": True, "max_error_rate": None, "p99_below": None}
    return marks_of(run, **{**facts, **changes})  # type: ignore[arg-type]


def codes(run: Run, **changes: object) -> list[str]:
    """Return the codes of the marks."""
    return [mark.code for mark in marks(run, **changes)]


def run_of(**changes: object) -> Run:
    """Return ten seconds of one caller whose calls take 20 ms."""
    facts = {"cpu": 0.2, "lag_s": 0.0003, "record": record(phase(0, 1)), "samples": calls(0, 1, 0.02), **changes}
    looks = ticks(10, cpu=facts["cpu"], lag_s=facts["lag_s"])  # type: ignore[arg-type]
    return Run(facts["record"], facts["samples"], looks, Path())  # type: ignore[arg-type]


def test_a_quiet_run_has_no_mark() -> None:
    """A load test without problems has no mark."""
    assert codes(run_of()) == []
    assert exit_code([]) == 0


def test_a_generator_at_its_core_is_marked() -> None:
    """A load generator with a full core makes the load test invalid, because the latencies are its own."""
    (mark,) = marks(run_of(cpu=0.97))

    assert (mark.code, mark.invalid) == ("generator-cpu", True)
    assert "97%" in mark.message
    assert exit_code([mark]) == 3


@pytest.mark.parametrize(
    ("lag_s", "latency_s", "marked"), [(0.0019, 0.01, False), (0.0031, 0.02, True), (0.01, 0.2, False)]
)
def test_a_late_generator_is_marked_in_relation_to_what_it_measures(
    lag_s: float,
    latency_s: float,
    marked: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A delay of 3 ms is marked for latencies of 20 ms, and not of 200 ms."""
    run = run_of(lag_s=lag_s, samples=calls(0, 1, latency_s))

    assert codes(run) == (["generator-lag"] if marked else [])


def test_an_emulation_shares_its_cores() -> None:
    """A busy generator beside the emulator is a warning and does not make the load test invalid."""
    run = run_of(cpu=0.97, record=record(phase(0, 1), target=target(emulated=True)))

    assert [(mark.code, mark.invalid) for mark in marks(run)] == [("generator-cpu", False)]


def test_a_rate_that_was_not_reached_is_marked() -> None:
    """A load test that sent half of its due calls has a mark."""
    samples = calls(0, 1, 0.02)
    samples["outcome"][250:] = Outcome.UNSENT
    run = run_of(samples=samples, record=record(phase(0, 1, rate=50.0)))

    (mark,) = marks(run)

    assert (mark.code, mark.invalid) == ("rate-not-reached", True)
    assert "50.0 calls/s were planned and 25.0 answered" in mark.message


def test_calls_due_in_the_last_moments_are_no_shortfall() -> None:
    """Calls that were due within the last latency of a step do not count as missing."""
    samples = calls(0, 1, 0.02)
    samples["done"] = samples["planned"] + 0.4
    run = run_of(samples=samples, record=record(phase(0, 1, rate=50.0)))

    assert codes(run) == []


def test_a_run_without_an_answer_names_the_reason() -> None:
    """A load test without an answer has the first call's failure as its reason."""
    cold = (ColdCall(model="a", first_s=None, second_s=None, refused=0, failure="connection failed: refused"),)
    run = run_of(samples=calls(0, 1, 0.1, outcome=Outcome.CONNECTION), record=record(phase(0, 1), cold=cold))

    (mark,) = marks(run)

    assert mark.message == "no measured call was answered: a: connection failed: refused"
    assert exit_code([mark]) == 1


def test_limits_of_the_user_are_kept_or_marked() -> None:
    """A missed limit of the user gives exit code 1, and the results stay valid."""
    samples = np.concatenate([calls(0, 1, 0.02)])
    samples["outcome"][::4] = Outcome.MODEL_ERROR
    run = run_of(samples=samples)

    assert codes(run, max_error_rate=0.25, p99_below=25.0) == []
    found = marks(run, max_error_rate=0.2, p99_below=19.0)
    assert [mark.code for mark in found] == ["error-rate", "p99", "p99"]
    assert not any(mark.invalid for mark in found)
    assert exit_code(found) == 1


def test_a_run_cut_short_says_so() -> None:
    """A load test that was ended early has a mark but stays valid."""
    (mark,) = marks(run_of(), complete=False)

    assert (mark.code, exit_code([mark])) == ("cut-short", 0)


def test_prices_come_from_the_list_or_the_user() -> None:
    """The price is that of all instances, and unknown for unknown types and the emulator."""
    one, three = price_of(target(), None), price_of(target(instance_count=3), None)
    assert one is not None
    assert three is not None
    assert (one.usd_per_hour, three.usd_per_hour) == pytest.approx((1.408, 4.224))
    assert one.date is not None
    assert price_of(target(instance_type="ml.none.xlarge"), None) is None
    assert price_of(target(emulated=True), None) is None
    assert price_of(target(kind="container", region=None), None) is None
    assert isinstance(price_of(target(emulated=True), 2.5), Price)
