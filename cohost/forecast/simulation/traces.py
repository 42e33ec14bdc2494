"""Traces: traffic as calls per minute, from a file or generated.

A file is CSV or JSON lines, with counts by time or one time per request. Generated traffic follows typical patterns of
services, with randomness in each minute.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import random
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from cohost.errors import SimulationError, SimulationFaultsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path


MINUTE: Final = 60
MINUTES_PER_DAY: Final = 24 * 60
MOST_MINUTES: Final = 5 * 366 * MINUTES_PER_DAY


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A trace: the number of calls in each minute from `start` on, a whole minute in UTC; `name` is its source."""

    name: str
    start: dt.datetime
    counts: Sequence[int]

    @property
    def calls(self) -> int:
        """Return the number of calls in the whole trace."""
        return sum(self.counts)

    @property
    def days(self) -> float:
        """Return the length of the trace in days."""
        return len(self.counts) / MINUTES_PER_DAY

    @property
    def seconds(self) -> float:
        """Return the length of the trace in seconds."""
        return float(len(self.counts) * MINUTE)


def trace_of_bins(name: str, bins: Iterable[tuple[float, int]], width_s: float) -> Trace:
    """Return the trace of calls that were counted in bins of `width_s` seconds.

    `bins` has the start (seconds since 1970) and the calls of each bin. A bin wider than a minute is spread evenly over
    its minutes, in whole calls; narrower bins are added up.

    Raises:
        SimulationError: `bins` is empty, or spans more than five years.
    """
    ordered = sorted(bins)
    if not ordered:
        raise SimulationError(
            "trace-empty", name, "holds no requests", allowed="one line or more", fix="name a file with requests"
        )
    first = math.floor(ordered[0][0] / MINUTE)
    minutes = math.ceil((ordered[-1][0] + width_s) / MINUTE) - first
    if minutes > MOST_MINUTES:
        start, end = (dt.datetime.fromtimestamp(at, dt.UTC).date() for at in (ordered[0][0], ordered[-1][0]))
        raise SimulationError(
            "trace-long",
            name,
            f"reaches from {start} to {end}",
            allowed="five years at most",
            fix="correct the times that are wrong",
        )
    counts = [0] * minutes
    for at, calls in ordered:
        _spread(counts, at - first * MINUTE, width_s, calls)
    return Trace(name=name, start=dt.datetime.fromtimestamp(first * MINUTE, dt.UTC), counts=counts)


def _spread(counts: list[int], offset_s: float, width_s: float, calls: int) -> None:
    """Add the calls of one bin evenly to the counts of its minutes, so that no call is lost to rounding."""
    index, given, end = int(offset_s // MINUTE), 0, offset_s + width_s
    while given < calls:
        share = min(1.0, ((index + 1) * MINUTE - offset_s) / width_s) if (index + 1) * MINUTE < end else 1.0
        upto = math.floor(calls * share + 0.5)
        counts[index] += upto - given
        given, index = upto, index + 1


TIME_NAMES: Final = ("time", "timestamp")
COUNT_NAMES: Final = ("requests", "calls", "count")
MOST_FAULTS: Final = 10
_ALLOWED_TIME: Final = "ISO 8601 such as 2027-01-04T08:00:00Z (no zone means UTC), or seconds since 1970"
_ALLOWED_LINE: Final = "time,requests with one line a bin, or time alone with one line a request"
_EARLIEST, _LATEST = 0.0, 4102444800.0  # 2100-01-01


class _Found:
    """The content of a trace file: `bins` of time, count and line number, or `singles`, one time per request."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bins: list[tuple[float, int, int]] = []
        self.singles: list[float] = []
        self.faults: list[SimulationError] = []

    def at(self, line: int) -> str:
        return f"{self.path}:{line}"

    def refuse(self, fault: SimulationError) -> None:
        self.faults.append(fault)
        if len(self.faults) >= MOST_FAULTS:
            raise SimulationFaultsError(self.faults)

    def take(self, line: int, row: Sequence[Any]) -> None:
        seconds = _time(row[0])
        if math.isnan(seconds):
            self.refuse(
                SimulationError(
                    "trace-time",
                    self.at(line),
                    f"time {row[0]!r} is not a time",
                    allowed=_ALLOWED_TIME,
                    fix="write it in this form",
                )
            )
        elif len(row) == 1:
            self.singles.append(seconds)
        elif not _is_count(row[1]):
            self.refuse(
                SimulationError(
                    "trace-count",
                    self.at(line),
                    f"requests {row[1]!r} is not a count",
                    allowed="whole numbers from 0",
                    fix="write the requests of that time",
                )
            )
        else:
            self.bins.append((seconds, int(row[1]), line))


def read_trace(path: Path) -> Trace:
    """Read a trace file. The suffix `.jsonl` or `.ndjson` means JSON lines, any other suffix CSV.

    CSV has the columns `time,requests`, or `time` alone; JSON lines hold objects with the same keys. The width of a bin
    is the smallest distance between two times. Times between bins had no requests.

    Raises:
        SimulationError: the file cannot be read, or has faults; the first ten faults are reported together, each with
            its line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"byte {error.start} is not UTF-8"
        raise SimulationError(
            "trace-unreadable", str(path), f"cannot be read ({reason})", fix="name a trace that exists, in UTF-8"
        ) from error
    found = _Found(path)
    rows = _json_rows if path.suffix.lower() in {".jsonl", ".ndjson"} else _csv_rows
    for line, row in rows(text.splitlines(), found):
        found.take(line, row)
    if found.bins and found.singles:
        found.refuse(
            SimulationError(
                "trace-mixed",
                str(path),
                "some lines have a count and some have none",
                fix="give every line `requests`, or none",
            )
        )
    width = _width(found)
    if found.faults:
        raise SimulationFaultsError(found.faults)
    if found.singles:
        return trace_of_bins(path.name, ((math.floor(at / MINUTE) * MINUTE, 1) for at in found.singles), MINUTE)
    return trace_of_bins(path.name, ((at, calls) for at, calls, _ in found.bins), width)


def _width(found: _Found) -> float:
    """Return the width of a file's bins in seconds; a repeated time is recorded as a fault."""
    gaps = []
    for (before, _, first), (after, _, second) in pairwise(sorted(found.bins, key=lambda one: one[0])):
        if before == after:
            found.refuse(
                SimulationError(
                    "trace-repeated",
                    found.at(max(first, second)),
                    f"has the time of line {min(first, second)}",
                    fix="add the two counts up in one line",
                )
            )
        gaps.append(after - before)
    return min(gaps, default=float(MINUTE))


def _csv_rows(lines: Iterable[str], found: _Found) -> Iterator[tuple[int, Sequence[Any]]]:
    reader = csv.reader(lines)
    columns: list[int] = []
    for row in reader:
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if not columns:
            names = [cell.lower() for cell in cells]
            columns = [names.index(name) for known in (TIME_NAMES, COUNT_NAMES) for name in _first(names, known)]
            if set(TIME_NAMES) & set(names):
                continue
            columns = list(range(min(len(cells), 2)))
        if max(columns) < len(cells):
            yield reader.line_num, [cells[column] for column in columns]
        else:
            at = found.at(reader.line_num)
            found.refuse(
                SimulationError(
                    "trace-columns",
                    at,
                    f"has {len(cells)} columns",
                    allowed=_ALLOWED_LINE,
                    fix="add the missing columns",
                )
            )


def _json_rows(lines: Iterable[str], found: _Found) -> Iterator[tuple[int, Sequence[Any]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            found.refuse(
                SimulationError(
                    "trace-json", found.at(number), f"is not JSON ({error})", fix="write one JSON object per line"
                )
            )
            continue
        if not isinstance(value, dict):
            yield number, [value]
        elif times := _first(value, TIME_NAMES):
            yield number, [value[name] for name in (*times, *_first(value, COUNT_NAMES))]
        else:
            found.refuse(
                SimulationError(
                    "trace-columns",
                    found.at(number),
                    f"has no time, only the keys {', '.join(value) or 'of an empty object'}",
                    allowed=_ALLOWED_LINE,
                    fix="add the key `time`",
                )
            )


def _first(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return a list with the first of the `known` names that is in `names`; an empty list if none of them is."""
    return [name for name in known if name in names][:1]


def _is_count(value: object) -> bool:
    if isinstance(value, str):
        return value.isdecimal() and value.isascii()
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _time(value: object) -> float:
    """Return a time as seconds since 1970; not-a-number for any value that is not a time between 1970 and 2100."""
    try:
        seconds = float(value) if not isinstance(value, bool) else math.nan  # type: ignore[arg-type]
    except (TypeError, ValueError):
        seconds = _iso_time(value)
    return seconds if _EARLIEST <= seconds < _LATEST else math.nan


def _iso_time(value: object) -> float:
    try:
        moment = dt.datetime.fromisoformat(str(value))
    except ValueError:
        return math.nan
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()


START: Final = dt.datetime(2027, 1, 4, tzinfo=dt.UTC)
"""The start of generated traces: a Monday, midnight UTC."""

DEFAULT_RATE: Final = 5.0
DEFAULT_DAYS: Final = 7
DEFAULT_SEED: Final = 1
BURSTS_PER_DAY: Final = 6
BURST_MINUTES: Final = 5
_FRIDAY: Final = 4
_OFFICE: Final = range(8, 18)
_NIGHT: Final = range(2, 3)
_LEISURE: Final = range(9, 22)
_LARGE: Final = 30.0


class Pattern(StrEnum):
    """A pattern of generated traffic, named by its busy hours; `make_trace` states these hours."""

    OFFICE_HOURS = "office-hours"
    CONSTANT = "constant"
    BURSTS = "bursts"
    NIGHTLY = "nightly"
    WEEKEND = "weekend"
    IDLE = "idle"


def make_trace(
    pattern: Pattern, *, rate: float = DEFAULT_RATE, days: int = DEFAULT_DAYS, seed: int = DEFAULT_SEED
) -> Trace:
    """Return a pattern's traffic from a Monday on: `rate` calls per second on average in busy hours, for `days` days.

    Busy hours (UTC) are, for office-hours: Monday to Friday 8 to 18; constant: always; bursts: at random, six times per
    day on average for five minutes; nightly: 2 to 3; weekend: Saturday and Sunday 9 to 22; idle: never. The number of
    calls of a minute is Poisson distributed. The same arguments give the same trace.

    Raises:
        SimulationError: the rate is not above 0.
    """
    if not 0 < rate < math.inf:
        raise SimulationError(
            "rate-invalid", "--rate", f"got {rate:g}", allowed="above 0", fix="give calls per second, such as 5"
        )
    chance = random.Random(seed)  # noqa: S311 - traffic, not a secret
    mean = rate * MINUTE
    counts = [_poisson(chance, mean) if busy else 0 for busy in _busy(pattern, days, chance)]
    name = f"{pattern}, {days} days" if pattern is Pattern.IDLE else f"{pattern}, {days} days, {rate:g} calls/s"
    return Trace(name=name, start=START, counts=counts)


def _busy(pattern: Pattern, days: int, chance: random.Random) -> Sequence[bool]:
    """Return, for each minute of a trace, True if the minute is in the pattern's busy hours."""
    if pattern is Pattern.BURSTS:
        return _bursts(days, chance)
    hours: dict[Pattern, Callable[[int, int], bool]] = {
        Pattern.OFFICE_HOURS: lambda day, hour: day <= _FRIDAY and hour in _OFFICE,
        Pattern.CONSTANT: lambda *_: True,
        Pattern.NIGHTLY: lambda _, hour: hour in _NIGHT,
        Pattern.WEEKEND: lambda day, hour: day > _FRIDAY and hour in _LEISURE,
        Pattern.IDLE: lambda *_: False,
    }
    is_busy = hours[pattern]
    return [is_busy(minute // MINUTES_PER_DAY % 7, minute // 60 % 24) for minute in range(days * MINUTES_PER_DAY)]


def _bursts(days: int, chance: random.Random) -> list[bool]:
    busy = [False] * (days * MINUTES_PER_DAY)
    for _ in range(days * BURSTS_PER_DAY):
        start = chance.randrange(len(busy))
        for minute in range(start, min(start + BURST_MINUTES, len(busy))):
            busy[minute] = True
    return busy


def _poisson(chance: random.Random, mean: float) -> int:
    """Return a Poisson-distributed number; large means use the normal approximation, which takes one draw."""
    if mean > _LARGE:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    limit, product, count = math.exp(-mean), chance.random(), 0
    while product > limit:
        product *= chance.random()
        count += 1
    return count
