"""Traffic from files and from patterns."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused
from hypothesis import given
from hypothesis import strategies as st

from cohost.errors import SimulationError
from cohost.forecast.simulation.traces import Pattern, make_trace, read_trace, trace_of_bins

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cohost.forecast.simulation.traces import Trace

EIGHT = dt.datetime(2027, 1, 4, 8, tzinfo=dt.UTC)


@pytest.fixture(name="read")
def _read(tmp_path: Path) -> Callable[..., Trace]:
    """Reads a text as a file of a trace."""

    def read(text: str, name: str = "trace.csv") -> Trace:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return read_trace(file)

    return read


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "time,requests\n2027-01-04T08:00:00Z,3\n2027-01-04T08:02:00Z,1\n2027-01-04T08:01:00Z,0\n"),
        ("b.csv", "2027-01-04T08:00:00,3\n2027-01-04T08:01:00,0\n\n2027-01-04T08:02:00,1\n"),
        ("c.csv", "model,Requests,Timestamp\nx,3,1799049600\ny,0,1799049660\nz,1,1799049720\n"),
        ("d.csv", "time\n2027-01-04 09:00:01+01:00\n2027-01-04 08:02:30Z\n1799049659.9\n1799049600\n"),
        ("e.jsonl", "".join(f'{{"time": {1799049600 + 60 * i}, "calls": {n}}}\n\n' for i, n in enumerate((3, 0, 1)))),
        ("f.ndjson", ('{"timestamp": "2027-01-04T08:02Z", "count": 1}\n{"calls": 3, "time": 1799049600}\n'
                      '{"time": "2027-01-04T08:01Z", "requests": 0}')),
        ("g.jsonl", '"2027-01-04T08:00:00Z"\n1799049601\n{"time": 1799049602.5}\n{"time": 1799049720}\n'),
    ],
)  # fmt: skip
def test_counts_and_single_requests_in_either_format_become_calls_a_minute(
    read: Callable[..., Trace], name: str, text: str
) -> None:
    """Traces with or without header, counts, ISO times and any order give calls per minute."""
    found = read(text, name)
    assert (found.start, list(found.counts), found.name) == (EIGHT, [3, 0, 1], name)


def test_bins_wider_than_a_minute_are_spread_and_gaps_are_quiet(read: Callable[..., Trace]) -> None:
    """Calls of five-minute bins are spread over minutes, and a missing bin has none."""
    found = read("time,requests\n2027-01-04T08:00Z,7\n2027-01-04T08:10Z,5\n2027-01-04T08:15Z,0\n")
    assert list(found.counts) == [1, 2, 1, 2, 1] + [0] * 5 + [1] * 5 + [0] * 5


def test_bins_narrower_than_a_minute_are_added_up(read: Callable[..., Trace]) -> None:
    """Bins of twenty seconds are added up to minutes."""
    found = read("time,requests\n" + "\n".join(f"{1799049600 + 20 * index},{index}" for index in range(6)))
    assert list(found.counts) == [0 + 1 + 2, 3 + 4 + 5]


@given(
    st.lists(
        st.tuples(st.integers(0, 500), st.integers(0, 1000)), min_size=1, max_size=20, unique_by=lambda one: one[0]
    ),
    st.sampled_from((1, 7, 10, 60, 90, 300, 3600)),
)
def test_no_call_is_lost_or_made_by_spreading(bins: list[tuple[int, int]], width: int) -> None:
    """Spreading the calls of bins keeps their number, whatever the width and the place of the bins."""
    found = trace_of_bins("a test", [(at * width, calls) for at, calls in bins], width)
    assert found.calls == sum(calls for _, calls in bins)
    assert min(found.counts) >= 0


@pytest.mark.parametrize(
    ("name", "text", "faults"),
    [
        ("a.csv", "time,requests\n2027-01-04T08:00Z,3\nyesterday,1\n2027-01-04T08:01Z,-1\n2027-01-04T08:02Z,1.5\n",
         [("trace-time", 3), ("trace-count", 4), ("trace-count", 5)]),
        ("b.csv", "time,requests\n1799049600,1\n1799049660,1\n1799049600,2\n", [("trace-repeated", 4)]),
        ("c.csv", "time,requests\n1799049600,1\n1799049660\n", [("trace-columns", 3)]),
        ("d.csv", "time\n1799049600000\n", [("trace-time", 2)]),
        ("e.jsonl", '{"time": 1\n{"at": 1}\n{"time": true}\n{"time": 1, "requests": "a"}\n',
         [("trace-json", 1), ("trace-columns", 2), ("trace-time", 3), ("trace-count", 4)]),
    ],
)  # fmt: skip
def test_faults_come_with_their_lines(
    read: Callable[..., Trace], name: str, text: str, faults: list[tuple[str, int]]
) -> None:
    """All faults of a trace are reported together, each with its line."""
    with refused(faults[0][0], kind=SimulationError) as caught:
        read(text, name)
    found = [(entry["code"], int(entry["field"].rpartition(":")[2])) for entry in caught.value.entries()]
    assert found == faults
    assert len(str(caught.value).splitlines()) == len(faults)


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("f.jsonl", '{"time": 1, "requests": 2}\n{"time": 61}\n', "trace-mixed"),
        ("g.csv", "time,requests\n", "trace-empty"),
        ("h.csv", "time,requests\n1,1\n1799049600,1\n", "trace-long"),
    ],
)
def test_files_that_are_wrong_as_a_whole_are_refused(
    read: Callable[..., Trace], name: str, text: str, code: str
) -> None:
    """A trace is rejected if it mixes rows with and without counts, has no request, or exceeds five years."""
    with refused(code, kind=SimulationError):
        read(text, name)


def test_a_file_full_of_faults_is_not_told_to_the_end(read: Callable[..., Trace]) -> None:
    """Only the first ten faults of a trace are reported."""
    with refused("trace-time") as caught:
        read("time,requests\n" + "x,1\n" * 1000)
    assert len(caught.value.entries()) == 10


def test_files_that_cannot_be_read_are_faults(tmp_path: Path) -> None:
    """A missing trace file and one that is no text are rejected."""
    (tmp_path / "bytes.csv").write_bytes(b"time\n\xff\n")
    for name in ("none.csv", "bytes.csv"):
        with refused("trace-unreadable", str(tmp_path / name), kind=SimulationError):
            read_trace(tmp_path / name)


@pytest.mark.parametrize(
    ("pattern", "busy"),
    [
        (Pattern.OFFICE_HOURS, 5 * 10 * 60),
        (Pattern.CONSTANT, 7 * 24 * 60),
        (Pattern.NIGHTLY, 7 * 60),
        (Pattern.WEEKEND, 2 * 13 * 60),
        (Pattern.IDLE, 0),
    ],
)
def test_patterns_are_busy_when_they_say(pattern: Pattern, busy: int) -> None:
    """A pattern has its rate in exactly its busy minutes of a week."""
    found = make_trace(pattern, rate=10)
    assert (found.start.weekday(), found.days) == (0, 7)
    assert sum(1 for calls in found.counts if calls) == busy
    assert found.calls == pytest.approx(600 * busy, rel=0.02)


def test_the_seed_decides_a_pattern() -> None:
    """The same seed gives the same traffic, and another seed gives other bursts."""
    first, again, other = (make_trace(Pattern.BURSTS, rate=0.2, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.counts != other.counts
    assert 7 * 5 * 5 * 12 * 0.3 < first.calls < 7 * 6 * 5 * 12 * 1.5


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    """A rate of 0 is rejected; the pattern without calls is `idle`."""
    with refused("rate-invalid", "--rate", kind=SimulationError):
        make_trace(Pattern.CONSTANT, rate=rate)
