"""Read files of traffic and recognise their format: CSV, JSON, JSON lines, CloudWatch's exports, or logs of an ALB.

Sources: CloudWatch API reference, GetMetricStatistics (`Datapoints` with `Timestamp`, `Sum`, `SampleCount`, `Unit`) and
GetMetricData (`MetricDataResults` with `Timestamps`, `Values`, `StatusCode`); Elastic Load Balancing user guide,
"Access log entries" (fields separated by spaces: field 2 is the time of the answer, field 22 the time of the request).
The layout of the CSV that CloudWatch's console exports is not documented, so any header lines may precede the first
line with a time.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from cohost.errors import SimulationError, SimulationFaultsError
from cohost.forecast.simulation.traces import MINUTE, trace_of_bins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cohost.forecast.simulation.traces import Trace

    Rows = Iterator[tuple[int, Sequence[Any]]]

TIME_NAMES: Final = ("time", "timestamp")
COUNT_NAMES: Final = ("requests", "calls", "count", "invocations", "requestcount", "sum", "samplecount")
MOST_FAULTS: Final = 10
MOST_HEADER_LINES: Final = 10
_ALLOWED_TIME: Final = "ISO 8601 such as 2027-01-04T08:00:00Z (no zone means UTC), or seconds since 1970, from 2006 on"
_ALLOWED_LINE: Final = "time,requests with one line a bin, or time alone with one line a request"
_ALLOWED_COLUMNS: Final = f"{' or '.join(TIME_NAMES)}, and one of {', '.join(COUNT_NAMES)} (in any letter case) or none"
_COUNT_UNITS: Final = ("Count", "None", None)
# 2006-01-01, before CloudWatch, and 2100-01-01: a smaller number is a count in the place of a time.
_EARLIEST, _LATEST = 1136073600.0, 4102444800.0
_SLASHES: Final = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})(.*)")
_LOG_LINE: Final = re.compile(r"(https?|h2|grpcs|wss?) \d{4}-\d\d-\d\dT\S+ \S+ ")
_ANSWERED_FIELD, _CREATED_FIELD = 1, 21


class _Found:
    """The content of a trace file: `bins` (time, count, line number) or `singles` (one time per request)."""

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

    def refuse_columns(self, line: int, problem: str) -> None:
        fix = "name the column with the counts `requests`, or leave `time` alone for one line a request"
        self.refuse(
            SimulationError("trace-columns", self.at(line), problem, allowed=_ALLOWED_COLUMNS, fix=fix),
        )

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
        elif (count := _count(row[1])) is None:
            self.refuse(
                SimulationError(
                    "trace-count",
                    self.at(line),
                    f"requests {row[1]!r} is not a count",
                    allowed="whole numbers from 0, such as 40 or 40.0",
                    fix="write the requests of that time; of a CloudWatch metric the statistic Sum",
                )
            )
        else:
            self.bins.append((seconds, count, line))


def read_trace(path: Path) -> Trace:
    """Read a file of traffic; the content of the file decides the format.

    CSV and JSON have a time and a count per bin (interval of time), or only a time per request; the case of the names
    of columns and keys is ignored. Other formats are the JSON of CloudWatch's GetMetricStatistics and GetMetricData,
    CSV from CloudWatch's console, and access logs of an Application Load Balancer (one request per line). The width of
    a bin is the smallest distance between two times in the file. Periods that no bin covers count as periods without
    requests.

    Raises:
        SimulationError: the file cannot be read, or has faults; the first ten faults are reported together, each with
            its line, and a column that is not understood with its name.
    """
    text = _text_of(path)
    found = _Found(path)
    for line, row in _rows(text, found):
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


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"byte {error.start} is not UTF-8"
        raise SimulationError(
            "trace-unreadable",
            str(path),
            f"cannot be read ({reason})",
            fix="name a trace that exists, in UTF-8, and not compressed",
        ) from error


def _rows(text: str, found: _Found) -> Rows:
    """Yield the line number and the cells (time, or time and count) of each bin or request, in any of the formats."""
    lines = text.splitlines()
    first = next((line.strip() for line in lines if line.strip()), "")
    if _LOG_LINE.match(first):
        return _log_rows(lines, found)
    if first.startswith(("{", "[")):
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if isinstance(document, dict | list):
            return _document_rows(document, found)
    as_json = first.startswith("{") or found.path.suffix.lower() in {".jsonl", ".ndjson"}
    return _json_rows(lines, found) if as_json else _csv_rows(lines, found)


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


def _csv_rows(lines: Iterable[str], found: _Found) -> Rows:
    reader = csv.reader(lines)
    header: list[tuple[int, list[str]]] = []
    columns: list[int] | None = None
    for row in reader:
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if columns is None:
            if math.isnan(_time(cells[0])) and len(header) < MOST_HEADER_LINES and not _names(header, TIME_NAMES):
                header.append((reader.line_num, cells))
                continue
            columns = _columns(header, cells, found)
            if columns is None:
                return
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
    if columns is None and header and not _names(header, TIME_NAMES):
        _refuse_header(header, found)


def _columns(header: Sequence[tuple[int, list[str]]], cells: Sequence[str], found: _Found) -> list[int] | None:
    """Return the indexes of the time's and the count's columns; if one is unclear, record a fault and return None."""
    if not header:
        if len(cells) > len(("time", "requests")):
            found.refuse_columns(1, f"has {len(cells)} columns without names")
            return None
        return list(range(len(cells)))
    times, counts = _names(header, TIME_NAMES), _names(header, COUNT_NAMES)
    line, names = header[-1]
    if not times and math.isnan(_time(cells[0])):
        _refuse_header(header, found)
        return None
    time = times[0] if times else 0
    if counts:
        return [time, counts[0]]
    others = [(name or f"number {at + 1}") for at, name in enumerate(names) if at != time]
    if not others and len(cells) == 1:
        return [time]
    unknown = ", ".join(repr(name) for name in others) or f"{len(cells)} columns"
    found.refuse_columns(line, f"has the column {unknown}, which is not understood")
    return None


def _refuse_header(header: Sequence[tuple[int, list[str]]], found: _Found) -> None:
    line, names = header[0]
    if len(header) == 1 or all(len(cells) == 1 for _, cells in header):
        for at, cells in header:
            found.take(at, cells[:1])
        return
    found.refuse_columns(line, f"has no time, only the columns {', '.join(map(repr, names))}")


def _names(header: Iterable[tuple[int, list[str]]], known: Sequence[str]) -> list[int]:
    """Return the indexes of the columns that have a name of `known` in a header line, in the order of `known`."""
    cells = [(at, cell.lower()) for _, line in header for at, cell in enumerate(line)]
    return [at for _, at in sorted((known.index(name), at) for at, name in cells if name in known)]


def _log_rows(lines: Iterable[str], found: _Found) -> Rows:
    """Yield the time of each request in an access log of an Application Load Balancer."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fields = next(csv.reader([line], delimiter=" ", escapechar="\\", doublequote=False))
        created = len(fields) > _CREATED_FIELD and not math.isnan(_time(fields[_CREATED_FIELD]))
        if _LOG_LINE.match(line):
            yield number, [fields[_CREATED_FIELD if created else _ANSWERED_FIELD]]
        else:
            found.refuse(
                SimulationError(
                    "trace-log",
                    found.at(number),
                    f"is no entry of an access log: {line[:80]!r}",
                    allowed="entries of an Application Load Balancer, one a line",
                    fix="take the line out",
                )
            )


def _json_rows(lines: Iterable[str], found: _Found) -> Rows:
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
        if (cells := _cells(number, value, found)) is not None:
            yield number, cells


def _document_rows(document: Mapping[str, Any] | Sequence[Any], found: _Found) -> Rows:
    """Yield the rows of a file that is one JSON document; a row's number is its position in the document's list."""
    if isinstance(document, dict) and "MetricDataResults" in document:
        yield from _metric_data_rows(document, found)
        return
    listed = document["Datapoints"] if isinstance(document, dict) and "Datapoints" in document else document
    for number, value in enumerate(listed if isinstance(listed, list) else [document], 1):
        if (cells := _cells(number, value, found)) is not None:
            yield number, cells


def _metric_data_rows(document: Mapping[str, Any], found: _Found) -> Rows:
    results = document["MetricDataResults"]
    labels = ", ".join(repr(result.get("Label", result.get("Id", "?"))) for result in results)
    partial = document.get("NextToken") or any(result.get("StatusCode", "Complete") != "Complete" for result in results)
    if len(results) != 1 or partial:
        problem = "is a part of the data" if len(results) == 1 else f"has {len(results)} metrics: {labels or 'none'}"
        found.refuse(
            SimulationError(
                "trace-metrics",
                str(found.path),
                problem,
                allowed="all datapoints of one metric",
                fix="export Invocations of one endpoint or component with the statistic Sum, to its last page",
            )
        )
        return
    (result,) = results
    yield from enumerate(zip(result.get("Timestamps", ()), result.get("Values", ()), strict=False), 1)


def _cells(number: int, value: Any, found: _Found) -> Sequence[Any] | None:
    """Return the time and the count, if any, of a JSON value; for unknown keys, record a fault and return None."""
    if not isinstance(value, dict):
        return [value]
    keys = {key.lower(): key for key in value}
    times, counts = ([keys[name] for name in known if name in keys] for known in (TIME_NAMES, COUNT_NAMES))
    others = [key for key in value if key not in {*times, *counts} and key.lower() != "unit"]
    if not times:
        found.refuse_columns(number, f"has no time, only the keys {', '.join(value) or 'of an empty object'}")
    elif not counts and others:
        found.refuse_columns(number, f"has the key {', '.join(map(repr, others))}, which is not understood")
    elif counts and "unit" in keys and value[keys["unit"]] not in _COUNT_UNITS:
        found.refuse_columns(number, f"has {counts[0]!r} in the unit {value[keys['unit']]!r}, which is no count")
    else:
        return [value[name] for name in (*times[:1], *counts[:1])]
    return None


def _count(value: object) -> int | None:
    """Return a value as an integer if it is a whole number of 0 or more, also if written as 40.0; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not value.isascii():
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number >= 0 and number.is_integer() else None


def _time(value: object) -> float:
    """Return a time as seconds since 1970; NaN if the value is not a time from 2006 to 2099."""
    try:
        seconds = float(value) if not isinstance(value, bool) else math.nan  # type: ignore[arg-type]
    except (TypeError, ValueError):
        seconds = _iso_time(value)
    return seconds if _EARLIEST <= seconds < _LATEST else math.nan


def _iso_time(value: object) -> float:
    text = str(value)
    if slashes := _SLASHES.fullmatch(text):
        year, month, day, rest = slashes.groups()
        text = f"{year}-{int(month):02}-{int(day):02}{rest}"
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
