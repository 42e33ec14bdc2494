"""Traffic from a file: CSV or JSON lines, with counts by time or with one time a request."""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from cohost.simulate.errors import SimulationError
from cohost.simulate.trace import MINUTE, trace_of_bins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from cohost.simulate.trace import Trace

TIME_NAMES: Final = ("time", "timestamp")
COUNT_NAMES: Final = ("requests", "calls", "count")
MOST_FAULTS: Final = 10
_ALLOWED_TIME: Final = "ISO 8601 such as 2027-01-04T08:00:00Z (no zone means UTC), or seconds since 1970"
_ALLOWED_LINE: Final = "time,requests with one line a bin, or time alone with one line a request"
_EARLIEST, _LATEST = 0.0, 4102444800.0  # 2100-01-01


@dataclass
class _Found:
    """What the lines held: times with a count, or without where each line is one request."""

    bins: list[tuple[float, int]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    singles: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def read_trace(path: Path) -> Trace:
    """Read a trace. The suffix `.jsonl` or `.ndjson` means JSON lines, any other CSV.

    CSV has the columns `time,requests`, or `time` alone; JSON lines hold objects with the same keys. The width of a bin
    is the smallest distance between two times. What lies between bins had no requests.

    Raises:
        SimulationError: the file cannot be read, or has faults; the first ten come together, each with its line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SimulationError(f"{path}: cannot be read ({error.strerror}); fix: name a trace that exists") from error
    except UnicodeDecodeError as error:
        raise SimulationError(f"{path}: byte {error.start} is not UTF-8; fix: save the file as UTF-8") from error
    rows = _json_rows if path.suffix.lower() in {".jsonl", ".ndjson"} else _csv_rows
    found = _Found()
    for line, fault, row in rows(text.splitlines()):
        _take(found, line, fault or _row_fault(row), row)
        if len(found.faults) >= MOST_FAULTS:
            break
    if found.bins and found.singles:
        found.faults.append("1: some lines have a count and some have none; fix: give every line `requests`, or none")
    width = _width(found)
    if found.faults:
        raise SimulationError("\n".join(f"{path}:{fault}" for fault in found.faults))
    if found.singles:
        return trace_of_bins(path.name, ((math.floor(at / MINUTE) * MINUTE, 1) for at in found.singles), MINUTE)
    return trace_of_bins(path.name, found.bins, width)


def _take(found: _Found, line: int, fault: str | None, row: Sequence[Any]) -> None:
    if fault is not None:
        found.faults.append(f"{line}: {fault}")
    elif len(row) == 1:
        found.singles.append(_time(row[0]))
    else:
        found.bins.append((_time(row[0]), int(row[1])))
        found.lines.append(line)


def _width(found: _Found) -> float:
    """Seconds of a bin; a time that stands twice is a fault."""
    order = sorted(range(len(found.bins)), key=lambda index: found.bins[index][0])
    gaps = []
    for before, after in pairwise(order):
        gap = found.bins[after][0] - found.bins[before][0]
        if gap == 0 and len(found.faults) < MOST_FAULTS:
            first, second = sorted((found.lines[before], found.lines[after]))
            found.faults.append(f"{second}: time: the same as on line {first}; fix: add the two counts up in one line")
        gaps.append(gap)
    return min(gaps, default=float(MINUTE))


Row = tuple[int, str | None, "Sequence[Any]"]
"""The line's number, what is wrong with it, and time with or without a count."""


def _csv_rows(lines: Iterable[str]) -> Iterator[Row]:
    reader = csv.reader(lines)
    columns: tuple[int, int | None] | None = None
    for row in reader:
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if columns is None:
            columns = _columns([cell.lower() for cell in cells])
            if columns is not None:
                continue
            columns = (0, 1 if len(cells) > 1 else None)
        at, count = columns
        if max(at, count or 0) >= len(cells):
            yield reader.line_num, f"has {len(cells)} columns; allowed: {_ALLOWED_LINE}; fix: add what is missing", ()
        else:
            yield reader.line_num, None, (cells[at],) if count is None else (cells[at], cells[count])


def _columns(names: Sequence[str]) -> tuple[int, int | None] | None:
    """Where time and count stand, by a first line of names; None where the first line is no such."""
    at = next((names.index(name) for name in TIME_NAMES if name in names), None)
    if at is None:
        return None
    return at, next((names.index(name) for name in COUNT_NAMES if name in names), None)


def _json_rows(lines: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            yield number, f"is no JSON ({error}); allowed: one JSON object a line; fix: mend the line", ()
            continue
        if isinstance(value, dict):
            yield _json_object(number, value)
        else:
            yield number, None, (value,)


def _json_object(number: int, value: dict[str, Any]) -> Row:
    times = [value[name] for name in TIME_NAMES if name in value]
    counts = [value[name] for name in COUNT_NAMES if name in value]
    if not times:
        keys = ", ".join(value) or "none"
        return number, f"has no time; keys: {keys}; allowed: {_ALLOWED_LINE}; fix: add the key `time`", ()
    return number, None, (times[0], *counts[:1])


def _row_fault(row: Sequence[Any]) -> str | None:
    """What is wrong with a line's values."""
    if math.isnan(_time(row[0])):
        return f"time: {row[0]!r} is no time; allowed: {_ALLOWED_TIME}; fix: write it so"
    if len(row) > 1 and not _is_count(row[1]):
        return f"requests: {row[1]!r} is no count; allowed: whole numbers from 0; fix: write the requests of that time"
    return None


def _is_count(value: object) -> bool:
    if isinstance(value, str):
        return value.isdecimal() and value.isascii()
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _time(value: object) -> float:
    """Seconds since 1970; not-a-number for what is no time between 1970 and 2100."""
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
