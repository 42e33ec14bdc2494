"""The three kinds of schedule expression: `at(…)`, `rate(…)` and `cron(…)`, in a time zone.

AWS: EventBridge Scheduler user guide, "Schedule types in EventBridge Scheduler". Application Auto Scaling's scheduled
actions use the same forms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from local_aws.scheduler.cron import Cron, CronError, parse_cron

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORM: Final = re.compile(r"(at|rate|cron)\((.+)\)")
_RATE: Final = re.compile(r"(\d+) (minute|hour|day)s?")
_UNITS: Final[Mapping[str, timedelta]] = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}


class ExpressionError(ValueError):
    """A schedule expression that cannot be read; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Expression:
    """When a schedule is due. Exactly one of `at`, `every` and `cron` is set; `zone` is that of `at` and `cron`."""

    zone: ZoneInfo
    at: datetime | None = None
    every: timedelta | None = None
    cron: Cron | None = None

    @property
    def once(self) -> bool:
        """Whether it comes one time only."""
        return self.at is not None

    def next_after(self, moment: datetime, *, anchor: datetime) -> datetime | None:
        """The first time after `moment`, in UTC; None when there is none.

        Args:
            moment: an aware time.
            anchor: where a rate is counted from: the schedule's start date, else its creation.
        """
        if self.at is not None:
            return self.at if self.at > moment else None
        if self.every is not None:
            if moment < anchor:
                return anchor
            return anchor + self.every * ((moment - anchor) // self.every + 1)
        return None if self.cron is None else self.cron.next_after(moment, self.zone)


def parse_expression(text: str, timezone: str | None) -> Expression:
    """Read a schedule expression.

    Args:
        text: `at(2026-12-31T18:00:00)`, `rate(5 minutes)` or `cron(0 18 ? * FRI *)`.
        timezone: a name of the tz database; None is UTC.

    Raises:
        ExpressionError: form, time or zone cannot be read.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ExpressionError(f"{text!r}; allowed: at(…), rate(…), cron(…)")
    kind, inner = found.groups()
    zone = _zone(timezone or "UTC")
    if kind == "at":
        return Expression(zone=zone, at=_time(inner, zone))
    if kind == "rate":
        return Expression(zone=zone, every=_interval(inner))
    try:
        return Expression(zone=zone, cron=parse_cron(inner))
    except CronError as error:
        raise ExpressionError(str(error)) from error


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ExpressionError(f"{name!r} is no time zone; allowed: a name such as Europe/Berlin") from error


def _time(text: str, zone: ZoneInfo) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=zone).astimezone(UTC)
    except ValueError as error:
        raise ExpressionError(f"at({text}); allowed: at(yyyy-mm-ddThh:mm:ss)") from error


def _interval(text: str) -> timedelta:
    found = _RATE.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise ExpressionError(f"rate({text}); allowed: rate(N minutes), rate(N hours), rate(N days)")
    return int(found[1]) * _UNITS[found[2]]
