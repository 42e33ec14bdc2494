"""When a schedule expression is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from local_aws.scheduler.expression import ExpressionError, parse_expression

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def due(text: str, zone: str | None = None, *, after: datetime = START, count: int = 1) -> list[str]:
    """The next times of an expression, in UTC and short."""
    expression = parse_expression(text, zone)
    found: list[str] = []
    moment: datetime | None = after
    while moment is not None and len(found) < count:
        moment = expression.next_after(moment, anchor=after)
        if moment is not None:
            found.append(f"{moment:%Y-%m-%dT%H:%M:%S}")
    return found


def test_one_time_is_read_in_its_zone() -> None:
    """Six in the evening in Seoul is nine in the morning in UTC, and comes once."""
    assert due("at(2026-12-31T18:00:00)", "Asia/Seoul", count=2) == ["2026-12-31T09:00:00"]


def test_one_time_that_is_past_never_comes() -> None:
    """A time before the moment asked about is not due again."""
    assert due("at(2026-11-30T11:59:59)") == []


def test_rate_counts_from_its_anchor() -> None:
    """The first time is the anchor itself, then one after each interval; a late look skips none of the pattern."""
    expression = parse_expression("rate(8 hours)", None)
    assert expression.next_after(START - timedelta(seconds=1), anchor=START) == START
    late = START + timedelta(hours=17)
    assert expression.next_after(late, anchor=START) == START + timedelta(hours=24)


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("cron(0 18 ? * FRI *)", "Europe/Berlin", ["2026-12-04T17:00:00", "2026-12-11T17:00:00"]),
        ("cron(0/20 12 30 11 ? 2026)", None, ["2026-11-30T12:20:00", "2026-11-30T12:40:00"]),
        ("cron(0 0 29 2 ? *)", None, ["2028-02-29T00:00:00", "2032-02-29T00:00:00"]),
        ("cron(30 8 ? JAN MON-TUE *)", None, ["2027-01-04T08:30:00", "2027-01-05T08:30:00"]),
        ("cron(0 9 1,15 * ? 2026)", None, ["2026-12-01T09:00:00", "2026-12-15T09:00:00"]),
    ],
)
def test_cron_fields(text: str, zone: str | None, expected: list[str]) -> None:
    """Lists, ranges, steps, names, years and zones; 1 is Sunday."""
    assert due(text, zone, count=2) == expected


def test_wall_clock_time_that_is_skipped_is_not_due() -> None:
    """02:30 does not exist in Berlin on 2027-03-28, so the schedule goes on with the next day."""
    after = datetime(2027, 3, 27, 12, 0, tzinfo=UTC)
    assert due("cron(30 2 * * ? *)", "Europe/Berlin", after=after, count=1) == ["2027-03-29T00:30:00"]


@pytest.mark.parametrize(
    ("text", "zone", "match"),
    [
        ("in(5 minutes)", None, "allowed: at"),
        ("at(2026-12-31)", None, r"allowed: at\(yyyy-mm-ddThh:mm:ss\)"),
        ("rate(0 hours)", None, "allowed: rate"),
        ("rate(5 fortnights)", None, "allowed: rate"),
        ("cron(0 18 * * *)", None, "5 fields"),
        ("cron(0 18 * * MON *)", None, "exactly one"),
        ("cron(0 18 L * ? *)", None, "not emulated"),
        ("cron(60 18 * * ? *)", None, "allowed: 0 to 59"),
        ("cron(5-1 18 * * ? *)", None, "out of range"),
        ("at(2026-12-31T18:00:00)", "Mars/Olympus", "no time zone"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, zone: str | None, match: str) -> None:
    """Each fault is told with what is allowed."""
    with pytest.raises(ExpressionError, match=match):
        parse_expression(text, zone)
