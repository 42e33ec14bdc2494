"""Schedule expressions of Application Auto Scaling: `cron(…)` of six fields, `rate(…)`, `at(…)`.

Syntax as AWS documents it (Application Auto Scaling user guide: Schedule recurring scaling actions using cron
expressions, and with rate expressions): minutes, hours, day of the month, month, day of the week (1 is Sunday), year.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ALLOWED_EXPRESSION: Final = "cron(minutes hours day month weekday year), rate(number unit) or at(yyyy-mm-ddThh:mm:ss)"

_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
MONTHS: Final = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
DAYS: Final = {"SUN": 1, "MON": 2, "TUE": 3, "WED": 4, "THU": 5, "FRI": 6, "SAT": 7}


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """One field of a cron expression: its name, its bounds, names of values, and what else may stand there."""

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
    _Kind(name="month", least=1, most=12, names=MONTHS, also=_NOTHING),
    _Kind(name="day of the week", least=1, most=7, names=DAYS, also=re.compile(r"\?|L|[1-7]L|[1-7]#[1-5]")),
    _Kind(name="year", least=1970, most=2199, names={}, also=_NOTHING),
)
_DAY_OF_MONTH, _DAY_OF_WEEK = 2, 4
RATE: Final = re.compile(r"rate\(([1-9]\d{0,5}) (minute|hour|day)(s?)\)")
_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_CRON = re.compile(r"cron\(([^()]*)\)")


def check_expression(text: str) -> str:
    """The expression unchanged.

    Raises:
        ValueError: Application Auto Scaling would refuse it; the text says what is wrong, what is allowed and the fix.
    """
    if (fault := next(_faults(text), None)) is not None:
        what, fix = fault
        msg = f"{text!r}: {what}; allowed: {ALLOWED_EXPRESSION}; fix: {fix}"
        raise ValueError(msg)
    return text


def _faults(text: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, and the fix."""
    if match := _CRON.fullmatch(text):
        yield from _cron_faults(match[1].split())
    elif match := _AT.fullmatch(text):
        yield from _at_faults(match[1])
    elif match := RATE.fullmatch(text):
        value, unit, plural = match.groups()
        if (value == "1") == bool(plural):
            yield f"{value} goes with {unit}{'' if value == '1' else 's'}", "mend the unit"
    elif "(" not in text and len(text.split()) == len(_CRON_FIELDS):
        yield "is a bare cron line", f"write 'cron({text})'"
    else:
        yield "is none of the three kinds", "for example cron(0 8 ? * MON-FRI *)"


def _at_faults(moment: str) -> Iterator[tuple[str, str]]:
    try:
        dt.datetime.fromisoformat(moment)
    except ValueError as error:
        yield f"is no time ({error})", "write a day and a time that exist"


def _cron_faults(fields: list[str]) -> Iterator[tuple[str, str]]:
    if len(fields) != len(_CRON_FIELDS):
        yield f"has {len(fields)} fields instead of {len(_CRON_FIELDS)}", "for example cron(0 8 ? * MON-FRI *)"
        return
    for kind, field in zip(_CRON_FIELDS, fields, strict=True):
        for item in field.split(","):
            if not kind.also.fullmatch(item) and not _is_item(kind, item):
                yield (
                    f"{item!r} is no {kind.name}",
                    f"*, or {kind.least} to {kind.most}, with ranges a-b, lists a,b and steps a/b",
                )
    if (fields[_DAY_OF_MONTH] == "?") == (fields[_DAY_OF_WEEK] == "?"):
        yield "one of day of the month and day of the week, and not both, must be ?", "put ? where you do not care"


def _is_item(kind: _Kind, item: str) -> bool:
    """Whether an item of a field is `*`, a value or a range, with a step or without."""
    base, slash, step = item.partition("/")
    if slash and not (step.isdecimal() and 1 <= int(step) <= kind.most):
        return False
    if base == "*":
        return True
    ends = [_value(kind, end) for end in base.split("-", 1)]
    known = [end for end in ends if end is not None]
    return len(known) == len(ends) and known == sorted(known)


def _value(kind: _Kind, text: str) -> int | None:
    value = kind.names.get(text, int(text) if text.isdecimal() and text.isascii() else None)
    return value if value is not None and kind.least <= value <= kind.most else None
