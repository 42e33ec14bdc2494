"""The six fields of a cron expression as EventBridge Scheduler reads them.

AWS: EventBridge Scheduler user guide, "Cron-based schedules": minutes, hours, day of month, month, day of week (1 is
Sunday), year; one of the two day fields is `?`. The wildcards L, W and # are not emulated and are refused by name.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from zoneinfo import ZoneInfo

_MONTHS: Final = {name.upper(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS: Final = {name: number for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), 1)}
_FIELDS: Final = 6
# A 29 February may be eight years away; further than that nothing comes.
_DAYS_AHEAD: Final = 9 * 366


class CronError(ValueError):
    """A cron expression that cannot be read; the text says which part."""


@dataclass(frozen=True, kw_only=True)
class Cron:
    """When a cron expression is due. `days` and `weekdays` are None where the field is `?`."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    years: frozenset[int]

    def next_after(self, moment: datetime, zone: ZoneInfo) -> datetime | None:
        """The first time after `moment`, in UTC; None when there is none.

        A wall-clock time that a change of the clocks skips is not due; one that comes twice is due the first time.
        """
        today = moment.astimezone(zone).date()
        for offset in range(_DAYS_AHEAD):
            day = today + timedelta(days=offset)
            if not self._is_due_on(day):
                continue
            for due in self._times_on(day, zone):
                if due > moment:
                    return due
        return None

    def _is_due_on(self, day: date) -> bool:
        if day.year not in self.years or day.month not in self.months:
            return False
        if self.days is not None:
            return day.day in self.days
        return self.weekdays is not None and day.isoweekday() % 7 + 1 in self.weekdays

    def _times_on(self, day: date, zone: ZoneInfo) -> Iterator[datetime]:
        for hour in sorted(self.hours):
            for minute in sorted(self.minutes):
                wall = datetime.combine(day, time(hour, minute), zone)
                due = wall.astimezone(UTC)
                if due.astimezone(zone).replace(tzinfo=None) == wall.replace(tzinfo=None):
                    yield due


def parse_cron(fields: str) -> Cron:
    """Read what stands between the brackets of `cron(…)`.

    Raises:
        CronError: a field is missing, out of range or not emulated.
    """
    parts = fields.upper().split()
    if len(parts) != _FIELDS:
        raise CronError(f"cron({fields}) has {len(parts)} fields; allowed: {_FIELDS}, minutes first and year last")
    minutes, hours, days, months, weekdays, years = parts
    if (days == "?") == (weekdays == "?"):
        raise CronError(f"cron({fields}): exactly one of day of month and day of week has to be ?")
    return Cron(
        minutes=_values(minutes, 0, 59),
        hours=_values(hours, 0, 23),
        days=None if days == "?" else _values(days, 1, 31),
        months=_values(months, 1, 12, _MONTHS),
        weekdays=None if weekdays == "?" else _values(weekdays, 1, 7, _DAYS),
        years=_values(years, 1970, 2199),
    )


def _values(field: str, least: int, most: int, names: Mapping[str, int] | None = None) -> frozenset[int]:
    """The numbers that a field stands for: `*`, `5`, `MON-FRI`, `0/15`, and lists of these."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start = least if first == "*" else _number(first, names)
        end = _number(last, names) if last else most if first == "*" or step else start
        stride = _number(step, None) if step else 1
        if not least <= start <= end <= most or stride < 1:
            raise CronError(f"{part!r} is out of range; allowed: {least} to {most}")
        found.update(range(start, end + 1, stride))
    return frozenset(found)


def _number(text: str, names: Mapping[str, int] | None) -> int:
    if names and text in names:
        return names[text]
    if not text.isdecimal():
        raise CronError(f"{text!r} is no number of a cron field (L, W and # are not emulated)")
    return int(text)
