"""Check Application Auto Scaling's schedule expressions `cron(…)`, `rate(…)` and `at(…)`; compute their times.

A cron expression has six fields: minutes, hours, day of the month, month, day of the week (1 is Sunday), year. Source
of the syntax and of the meaning of L, W and #: Application Auto Scaling user guide, "Schedule recurring scaling actions
using cron expressions" and "Schedule recurring scaling actions using rate expressions".
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
import zoneinfo
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cohost.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


ALLOWED_EXPRESSION: Final = "cron(minutes hours day month weekday year), rate(number unit) or at(yyyy-mm-ddThh:mm:ss)"

_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_MONTHS: Final = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_DAYS: Final = {"SUN": 1, "MON": 2, "TUE": 3, "WED": 4, "THU": 5, "FRI": 6, "SAT": 7}


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """The rules for one field of a cron expression: name, bounds, named values (such as MON), and special values."""

    name: str
    least: int
    most: int
    names: Mapping[str, int]
    also: re.Pattern[str]


_NOTHING = re.compile(r"(?!)")
_CRON_FIELDS: Final = (
    _Kind(name="minutes", least=0, most=59, names={}, also=_NOTHING),
    _Kind(name="hours", least=0, most=23, names={}, also=_NOTHING),
    _Kind(name="day of the month", least=1, most=31, names={}, also=re.compile(r"\?|L|LW|([1-9]|[12]\d|3[01])W")),
    _Kind(name="month", least=1, most=12, names=_MONTHS, also=_NOTHING),
    _Kind(name="day of the week", least=1, most=7, names=_DAYS, also=re.compile(r"\?|L|[1-7]L|[1-7]#[1-5]")),
    _Kind(name="year", least=1970, most=2199, names={}, also=_NOTHING),
)
_MINUTES, _HOURS, _DAY_OF_MONTH, _MONTH, _DAY_OF_WEEK, _YEAR = _CRON_FIELDS
_RATE = re.compile(r"rate\(([1-9]\d{0,5}) (minute|hour|day)(s?)\)")
_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_CRON = re.compile(r"cron\(([^()]*)\)")


def check_expression(text: str) -> str:
    """Return the expression unchanged if Application Auto Scaling accepts it.

    Raises:
        InvalidValueError: Application Auto Scaling would refuse the expression.
    """
    if (fault := next(_faults(text), None)) is not None:
        what, fix = fault
        refuse("schedule-not-allowed", f"{text!r} {what}", allowed=ALLOWED_EXPRESSION, fix=fix)
    return text


def _faults(text: str) -> Iterator[tuple[str, str]]:
    """Yield each fault of an expression with its fix."""
    if match := _CRON.fullmatch(text):
        yield from _cron_faults(match[1].split())
    elif match := _AT.fullmatch(text):
        yield from _at_faults(match[1])
    elif match := _RATE.fullmatch(text):
        value, unit, plural = match.groups()
        if (value == "1") == bool(plural):
            yield f"{value} goes with {unit}{'' if value == '1' else 's'}", "correct the unit"
    elif "(" not in text and len(text.split()) == len(_CRON_FIELDS):
        yield "is a bare cron line", f"write 'cron({text})'"
    else:
        yield "is none of the three kinds", "for example cron(0 8 ? * MON-FRI *)"


def _at_faults(moment: str) -> Iterator[tuple[str, str]]:
    try:
        dt.datetime.fromisoformat(moment)
    except ValueError as error:
        yield f"is not a time ({error})", "write a day and a time that exist"


def _cron_faults(fields: list[str]) -> Iterator[tuple[str, str]]:
    if len(fields) != len(_CRON_FIELDS):
        yield f"has {len(fields)} fields instead of {len(_CRON_FIELDS)}", "for example cron(0 8 ? * MON-FRI *)"
        return
    for kind, field in zip(_CRON_FIELDS, fields, strict=True):
        for item in field.split(","):
            if not kind.also.fullmatch(item) and _numbers(kind, item) is None:
                yield (
                    f"{item!r} is not a value for {kind.name}",
                    f"*, or {kind.least} to {kind.most}, with ranges a-b, lists a,b and steps a/b",
                )
    if (fields[2] == "?") == (fields[4] == "?"):
        yield "one of day of the month and day of the week, and not both, must be ?", "replace one of them by ?"


def _numbers(kind: _Kind, item: str) -> range | None:
    """Return the numbers that one item of a cron field matches; None if the item is invalid.

    A valid item is `*`, a value or a range, with or without a step.
    """
    base, slash, step = item.partition("/")
    if slash and not (step.isdecimal() and 1 <= int(step) <= kind.most):
        return None
    if base == "*":
        return range(kind.least, kind.most + 1, int(step or 1))
    ends = [_value(kind, end) for end in base.split("-", 1)]
    known = [end for end in ends if end is not None]
    if len(known) != len(ends) or known != sorted(known):
        return None
    last = kind.most if slash and len(known) == 1 else known[-1]
    return range(known[0], last + 1, int(step or 1))


def _value(kind: _Kind, text: str) -> int | None:
    value = kind.names.get(text, int(text) if text.isdecimal() and text.isascii() else None)
    return value if value is not None and kind.least <= value <= kind.most else None


_UNITS: Final = {"minute": 60, "hour": 3600, "day": 86400}


def next_time(expression: str, timezone: str, after: float, *, start: float) -> float | None:
    """Return the first time later than `after` that an expression matches, in seconds since 1970; None without a match.

    Args:
        expression: an expression that `check_expression` has accepted.
        timezone: the IANA name of the time zone of `cron` and `at`.
        after: a time in seconds since 1970.
        start: the time from which the intervals of `rate` are counted, in seconds since 1970.
    """
    if match := _RATE.fullmatch(expression):
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
    """The six fields of a cron expression.

    The fields for the day of the month and the day of the week stay text, since the days that L, W and # stand for
    depend on the month.
    """

    minutes: list[int]
    hours: list[int]
    day_of_month: str
    months: set[int]
    day_of_week: str
    years: set[int]

    @classmethod
    def parse(cls, text: str) -> _Cron:
        minutes, hours, day_of_month, months, day_of_week, years = text.split()
        return cls(
            minutes=sorted(_values(_MINUTES, minutes)),
            hours=sorted(_values(_HOURS, hours)),
            day_of_month=day_of_month,
            months=_values(_MONTH, months),
            day_of_week=day_of_week,
            years=_values(_YEAR, years),
        )

    def times(self, first: dt.date, zone: zoneinfo.ZoneInfo) -> Iterator[float]:
        """Yield in order all times that match, from the day `first` on, in seconds since 1970."""
        for ordinal in range(first.toordinal(), dt.date(max(self.years) + 1, 1, 1).toordinal()):
            day = dt.date.fromordinal(ordinal)
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
    return day.day in _values(_DAY_OF_MONTH, item)


def _is_day_of_week(item: str, day: dt.date) -> bool:
    weekday = day.isoweekday() % 7 + 1
    if item == "L":
        return weekday == _DAYS["SAT"]
    if item.endswith("L"):
        return weekday == int(item[:-1]) and (day + dt.timedelta(days=7)).month != day.month
    wanted, number_sign, which = item.partition("#")
    if number_sign:
        return weekday == int(wanted) and (day.day - 1) // 7 + 1 == int(which)
    return weekday in _values(_DAY_OF_WEEK, item)


def _nearest_weekday(day: dt.date) -> dt.date:
    """Return the day itself if it is from Monday to Friday, else the nearest day from Monday to Friday in its month."""
    shift = {6: -1, 7: 1}.get(day.isoweekday(), 0)
    near = day + dt.timedelta(days=shift)
    return near if near.month == day.month else day - dt.timedelta(days=2 * shift)


def _values(kind: _Kind, field: str) -> set[int]:
    """Return the numbers that a field of a cron expression matches."""
    return {number for item in field.split(",") for number in _numbers(kind, item) or ()}
