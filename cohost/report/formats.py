"""Write numbers, times and tables as text, equally for Markdown, pages and terminals; compute the cost of items.

A dash means that a value does not exist; "unknown" means that the value exists but is not known.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NONE: Final = "-"
UNKNOWN: Final = "unknown"
_TEN, _HUNDRED = 10, 100
_MILLION, _SECONDS_PER_MINUTE, _SECONDS_PER_HOUR = 1_000_000, 60, 3600


def usd_per_million(usd_per_hour: float | None, items_per_s: float | None) -> float | None:
    """Return USD per million items at a sustained rate; None if the price or the rate is unknown, or the rate is 0."""
    if usd_per_hour is None or not items_per_s:
        return None
    return usd_per_hour / (items_per_s * _SECONDS_PER_HOUR) * _MILLION


class Table(NamedTuple):
    """A table and its title.

    `kind` names the table's CSS classes in the pages' style sheet; `what` is the explanation above the table. If
    `columns` is empty, each row is a name and a value.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    kind: str = "names1"
    what: str = ""


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in GitHub's Markdown, with a dash for None; vertical bars in values are escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    cells = [[NONE if value is None else str(value).replace("|", "\\|") for value in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def markdown_notes(notes: Iterable[tuple[str, str]]) -> str:
    """Return remarks as a list in Markdown, each with its weight: invalid, warning or note."""
    return "\n".join(f"- **{weight}**: {text}" for weight, text in notes)


def number(value: float | None, digits: int = 1) -> str:
    """Return a number with `digits` decimals as text; a dash for None."""
    return NONE if value is None else f"{value:,.{digits}f}"


def short(value: float | None) -> str:
    """Return a number of any size with about three digits, as text; a dash for None."""
    if value is None:
        return NONE
    if abs(value) >= _HUNDRED:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= _TEN else f"{value:.2f}"


def moment(seconds: float) -> str:
    """Return a moment, in seconds since the epoch, as a date and time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(seconds: float) -> str:
    """Return a duration in seconds as text, such as "2 min 5 s"."""
    whole = round(seconds)
    if whole < _SECONDS_PER_MINUTE:
        return f"{seconds:.1f} s"
    return f"{whole // _SECONDS_PER_MINUTE} min {whole % _SECONDS_PER_MINUTE} s"
