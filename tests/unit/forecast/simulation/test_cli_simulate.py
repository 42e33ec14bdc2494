"""`cohost simulate`: tables, JSON, the page, and rejected options."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.refusals import refused
from typer.testing import CliRunner

from cohost import cli
from cohost.errors import ReportError, SimulationError

if TYPE_CHECKING:
    from click import Result

ENCODERS = str(Path(__file__).parents[4] / "model_configs" / "encoders.yaml")
OFFLINE = str(Path(__file__).parents[4] / "model_configs" / "offline.yaml")


def run(*arguments: str) -> Result:
    """Run the command in this process; an unexpected exception fails the test."""
    command = ["simulate", "--catalog", ENCODERS, "--region", "us-east-1", *arguments]
    return CliRunner(env={"COLUMNS": "80"}).invoke(cli.app, command, catch_exceptions=False)


def data(*arguments: str) -> Any:
    """Return what `cohost simulate` prints as JSON."""
    return json.loads(run(*arguments, "--json").stdout)


def test_it_shows_cost_and_calls_of_both_topologies() -> None:
    """The table has cost and calls of both topologies: 24 hours for one, the tail of an idle day for the other."""
    result = run("--pattern", "idle", "--days", "1")
    assert result.exit_code == 0
    for text in ("multi-model", "33.79", "1027.84", "scale-to-zero, fail", "scale-to-zero, wait", "0.63", "0.45"):
        assert text in result.stdout
    assert "1.408 USD an hour (AWS Pricing API, 2026-08-07)" in result.stdout.replace("\n", " ")


def test_json_has_everything_a_script_compares() -> None:
    """The JSON has one entry per design, with settings, cost, outcomes of calls and percentiles."""
    found = data("--pattern", "office-hours", "--days", "1", "--idle-minutes", "30")
    assert [(one["topology"], one["callers"]) for one in found["results"]] == [
        ("multi-model", None),
        ("scale-to-zero", "fail"),
        ("scale-to-zero", "wait"),
    ]
    multi, fail, wait = found["results"]
    assert fail["scaling"]["idle_minutes"] == 30
    assert multi["usd_per_day"] == pytest.approx(24 * 1.408)
    assert fail["usd_per_day"] == pytest.approx(fail["instance_hours"] * 1.408)
    assert (fail["cold_starts"], fail["delayed"], wait["refused"]) == (1, 0, 0)
    assert fail["refused"] > 0 < wait["delayed"]
    assert fail["answered"] + fail["refused"] == wait["answered"] == found["trace"]["calls"]
    assert 500 < wait["delay_s"]["p95"] < 564
    assert found["service"]["start_s"] == 504


def test_a_sweep_marks_what_nothing_beats() -> None:
    """A sweep marks each setting for which no other is both cheaper and better."""
    result = run("--pattern", "nightly", "--idle-minutes", "5,60", "--callers", "fail")
    assert re.search(r"scale-to-zero, fail \* +│ 5 ", result.stdout)
    assert re.search(r"scale-to-zero, fail +│ 60 ", result.stdout)
    assert re.search(r"multi-model \* +│ - ", result.stdout)


def test_an_unknown_price_is_unknown_and_never_0() -> None:
    """Without a price the table has hours, and a warning names the command that fetches prices."""
    result = run("--pattern", "idle", "--days", "1", "--region", "eu-north-1")
    assert result.stdout.count("unknown") >= 3 * 2
    assert "no price of ml.g5.xlarge in eu-north-1" in result.stderr
    found = data("--pattern", "idle", "--days", "1", "--region", "eu-north-1")
    assert found["price"] is None
    assert {one["usd_per_day"] for one in found["results"]} == {None}


def test_figures_of_the_service_can_be_given() -> None:
    """Options replace the measured times and rates of the service."""
    given = ["--requests-per-second", "10", "--service-ms", "20", "--wake-seconds", "120", "--start-seconds", "30"]
    given += ["--tail-minutes", "2", "--instance-tail-minutes", "1", "--wake-timeout", "60"]
    found = data("--pattern", "idle", "--days", "1", *given)
    assert found["service"] == {
        "requests_per_second": 10,
        "service_s": 0.02,
        "wake_s": 120,
        "start_s": 30,
        "idle_tail_s": 120,
        "instance_tail_s": 60,
        "call_timeout_s": 60,
        "wake_timeout_s": 60,
    }
    assert found["results"][1]["instance_hours"] == pytest.approx(3 / 60)


def test_a_rate_of_other_models_is_not_taken_silently() -> None:
    """A warning says so if the rate was measured with other models or another type."""
    assert "measured with other models" not in run("--pattern", "idle").stderr
    warned = run("--pattern", "idle", "--catalog", OFFLINE)
    assert "measured with other models" in warned.stderr
    assert "measured with" not in run("--pattern", "idle", "--catalog", OFFLINE, "--requests-per-second", "9").stderr


def test_a_trace_is_read_from_a_file(tmp_path: Path) -> None:
    """With --trace the replay uses the calls of the file."""
    file = tmp_path / "calls.csv"
    file.write_text("time,requests\n2027-01-04T08:00Z,5\n2027-01-04T09:00Z,7\n", encoding="utf-8")
    assert data("--trace", str(file))["trace"]["calls"] == 12


@pytest.mark.parametrize(
    ("arguments", "code", "field"),
    [
        ([], "traffic-source", "--trace and --pattern"),
        (["--trace", "x", "--pattern", "idle"], "traffic-source", "--trace and --pattern"),
        (["--trace", "x", "--days", "2"], "pattern-option", "--days"),
        (["--pattern", "idle", "--max", "1,x"], "list-invalid", "--max"),
        (["--pattern", "idle", "--idle-minutes", "long"], "list-invalid", "--idle-minutes"),
        (["--pattern", "idle", "--target", "4,"], "list-invalid", "--target"),
    ],
)
def test_wrong_options_are_refused_in_one_line(arguments: list[str], code: str, field: str) -> None:
    """A wrong option is rejected in one line with its name, before a replay."""
    with refused(code, field, kind=SimulationError) as caught:
        run(*arguments)
    assert "\n" not in str(caught.value)


def test_the_page_stands_alone_and_shows_every_plot(tmp_path: Path) -> None:
    """The page has no script and no link, and has plots of traffic, copies, lost calls and, for a sweep, cost."""
    file = tmp_path / "scaling.html"
    result = run("--pattern", "bursts", "--idle-minutes", "none,60", "--html", str(file))
    page = file.read_text(encoding="utf-8")
    assert str(file) in result.stderr.replace("\n", "")
    assert not re.findall(r"<script|https?://|src=|@import", page)
    titles = re.findall(r"<h3>([^<]+)</h3>", page)
    assert titles == [
        "Cost against service",
        "Traffic",
        "Refused and delayed calls",
        "Copies, multi-model",
        "Copies, scale-to-zero, fail",
        "Copies, scale-to-zero, wait",
        "What it costs",
        "Calls that were not served at once",
        "Time to an answer",
    ]
    assert page.count("<svg") == 6
    assert "scale-to-zero, wait: answered late" in page


def test_the_page_of_quiet_traffic_says_so(tmp_path: Path) -> None:
    """The page of traffic without calls and prices says so, and has no empty plot of rejected calls."""
    file = tmp_path / "idle.html"
    run("--pattern", "idle", "--days", "1", "--region", "eu-north-1", "--html", str(file))
    page = file.read_text(encoding="utf-8")
    assert "None: every call was answered at once." in page
    assert "unknown" in page


def test_a_page_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    """A page in a missing folder is an error."""
    with refused("page-unwritable", "--html", kind=ReportError):
        run("--pattern", "idle", "--days", "1", "--html", str(tmp_path / "none" / "x.html"))
