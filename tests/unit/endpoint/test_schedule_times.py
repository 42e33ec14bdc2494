"""The times at which schedule expressions are due by AWS's documentation."""

from __future__ import annotations

import datetime as dt

import pytest

from cohost.endpoint.schedules import next_time


def due(expression: str, after: str, *, timezone: str = "UTC", start: str = "2027-01-01T00:00") -> str | None:
    """The next time after a moment in UTC, as text in UTC."""
    at = next_time(expression, timezone, _seconds(after), start=_seconds(start))
    return None if at is None else f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%dT%H:%M}"


def _seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("cron(0 8 ? * MON-FRI *)", "2027-01-01T09:00", "2027-01-04T08:00"),
        ("cron(0 8 ? * 2-6 *)", "2027-01-04T08:00", "2027-01-05T08:00"),
        ("cron(0/20 * * * ? *)", "2027-01-01T00:01", "2027-01-01T00:20"),
        ("cron(5,35 6-7 1 JAN,JUL ? *)", "2027-01-01T07:35", "2027-07-01T06:05"),
        ("cron(0 0 L * ? *)", "2027-02-01T00:00", "2027-02-28T00:00"),
        ("cron(0 0 15W * ? *)", "2027-05-01T00:00", "2027-05-14T00:00"),
        ("cron(0 0 1W * ? *)", "2027-05-01T00:00", "2027-05-03T00:00"),
        ("cron(0 0 LW * ? *)", "2027-01-01T00:00", "2027-01-29T00:00"),
        ("cron(0 0 ? * 6L *)", "2027-01-01T00:00", "2027-01-29T00:00"),
        ("cron(0 0 ? * 2#3 *)", "2027-01-01T00:00", "2027-01-18T00:00"),
        ("cron(0 0 ? * L *)", "2027-01-01T00:00", "2027-01-02T00:00"),
        ("cron(0 0 29 2 ? *)", "2027-01-01T00:00", "2028-02-29T00:00"),
        ("cron(0 0 29 2 ? *)", "2097-01-01T00:00", "2104-02-29T00:00"),
        ("cron(0 0 ? 2 1#5 *)", "2032-03-01T00:00", "2060-02-29T00:00"),
        ("cron(0 0 30 2 ? *)", "2027-01-01T00:00", None),
        ("cron(0 0 1 1 ? 2026)", "2027-01-01T00:00", None),
        ("cron(0 8 1 JAN ? 2060)", "2027-01-01T00:00", "2060-01-01T08:00"),
        ("cron(0 0 ? 2 1#5 *)", "2088-03-01T00:00", "2128-02-29T00:00"),
        ("rate(90 minutes)", "2027-01-01T01:30", "2027-01-01T03:00"),
        ("rate(1 day)", "2026-12-31T00:00", "2027-01-02T00:00"),
        ("at(2027-03-01T12:00:00)", "2027-01-01T00:00", "2027-03-01T12:00"),
        ("at(2027-03-01T12:00:00)", "2027-03-01T12:00", None),
    ],
)
def test_the_next_time_follows_the_expression(expression: str, after: str, expected: str | None) -> None:
    """The next time is correct for fields, names, ranges, steps, L, W and #, for rates, and for expired ones."""
    assert due(expression, after) == expected


def test_clock_times_are_those_of_the_time_zone() -> None:
    """A clock time follows the daylight saving time of its time zone."""
    winter, summer = (
        due("cron(0 8 * * ? *)", f"2027-{month}-01T00:00", timezone="Europe/Berlin") for month in ("01", "07")
    )
    assert (winter, summer) == ("2027-01-01T07:00", "2027-07-01T06:00")
    assert due("at(2027-07-01T08:00:00)", "2027-01-01T00:00", timezone="Europe/Berlin") == "2027-07-01T06:00"
