"""When a scheduled action is due: the times of `cron(…)`, `rate(…)` and `at(…)`.

Syntax and the meaning of L, W and #: Application Auto Scaling user guide, "Schedule recurring scaling actions using
cron expressions" and "… using rate expressions".
"""

from __future__ import annotations

import calendar
import datetime as dt
import zoneinfo
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cohost.scaling.schedule_expression import DAYS, MONTHS, RATE

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNITS: Final = {"minute": 60, "hour": 3600, "day": 86400}
# A day that exists at all comes within that: the 29th of February on a given weekday is the rarest.
_LOOK_AHEAD_DAYS: Final = 366 * 29


def next_time(expression: str, timezone: str, after: float, *, start: float) -> float | None:
    """The first time later than `after` at which an expression is due, in seconds since 1970; None if there is none.

    Args:
        expression: one that `schedule_expression.check_expression` has accepted.
        timezone: an IANA name.
        after: seconds since 1970.
        start: what a rate is counted from.
    """
    if match := RATE.fullmatch(expression):
        every = int(match[1]) * _UNITS[match[2]]
        return start + (max(int((after - start) // every), 0) + 1) * every
    zone = zoneinfo.ZoneInfo(timezone)
    if expression.startswith("at("):
        once = dt.datetime.fromisoformat(expression[3:-1]).replace(tzinfo=zone).timestamp()
        return once if once > after else None
    times = _Cron.parse(expression[5:-1]).times(dt.datetime.fromtimestamp(after, zone).date(), zone)
    return next((time for time in times if time > after), None)


@dataclass(frozen=True, kw_only=True)
class _Cron:
    """The six fields of a cron expression; the two of days as text, since they can mean several things."""

    minutes: list[int]
    hours: list[int]
    day_of_month: str
    months: frozenset[int]
    day_of_week: str
    years: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> _Cron:
        minutes, hours, day_of_month, months, day_of_week, years = text.split()
        return cls(
            minutes=sorted(_values(minutes, 0, 59)),
            hours=sorted(_values(hours, 0, 23)),
            day_of_month=day_of_month,
            months=frozenset(_values(months, 1, 12, MONTHS)),
            day_of_week=day_of_week,
            years=frozenset(_values(years, 1970, 2199)),
        )

    def times(self, first: dt.date, zone: zoneinfo.ZoneInfo) -> Iterator[float]:
        """All times from a day on, in order."""
        for offset in range(_LOOK_AHEAD_DAYS):
            day = first + dt.timedelta(days=offset)
            if day.year in self.years and day.month in self.months and self._has_day(day):
                yield from (
                    dt.datetime.combine(day, dt.time(hour, minute), zone).timestamp()
                    for hour in self.hours
                    for minute in self.minutes
                )

    def _has_day(self, day: dt.date) -> bool:
        if self.day_of_month != "?":
            return any(_is_day_of_month(item, day) for item in self.day_of_month.split(","))
        return any(_is_day_of_week(item, day) for item in self.day_of_week.split(","))


def _is_day_of_month(item: str, day: dt.date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if item == "L":
        return day.day == last
    if item.endswith("W"):
        wanted = last if item == "LW" else int(item[:-1])
        return wanted <= last and day == _nearest_weekday(day.replace(day=wanted))
    return day.day in _values(item, 1, 31)


def _is_day_of_week(item: str, day: dt.date) -> bool:
    weekday = day.isoweekday() % 7 + 1
    if item == "L":
        return weekday == DAYS["SAT"]
    if item.endswith("L"):
        return weekday == int(item[:-1]) and (day + dt.timedelta(days=7)).month != day.month
    wanted, number_sign, which = item.partition("#")
    if number_sign:
        return weekday == int(wanted) and (day.day - 1) // 7 + 1 == int(which)
    return weekday in _values(item, 1, 7, DAYS)


def _nearest_weekday(day: dt.date) -> dt.date:
    """The day itself, or the weekday next to it in the same month."""
    shift = {6: -1, 7: 1}.get(day.isoweekday(), 0)
    near = day + dt.timedelta(days=shift)
    return near if near.month == day.month else day - dt.timedelta(days=2 * shift)


def _values(field: str, least: int, most: int, names: dict[str, int] | None = None) -> set[int]:
    """The numbers that a field stands for."""

    def number(text: str) -> int:
        return (names or {}).get(text) or int(text)

    found: set[int] = set()
    for item in field.split(","):
        base, slash, step = item.partition("/")
        low, dash, high = base.partition("-")
        if base in {"*", "?"}:
            first, last = least, most
        else:
            first = number(low)
            last = number(high) if dash else (most if slash else first)
        found.update(range(first, last + 1, int(step) if slash else 1))
    return found
