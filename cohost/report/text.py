"""How numbers are written in reports: the same in Markdown and on the page."""

from __future__ import annotations

from datetime import UTC, datetime

NONE = "-"
UNKNOWN = "unknown"
_TEN, _HUNDRED = 10, 100


def number(value: float | None, digits: int = 1) -> str:
    """A number with so many decimals; a dash for none."""
    return NONE if value is None else f"{value:,.{digits}f}"


def short(value: float | None) -> str:
    """A number with three digits or so, whatever its size."""
    if value is None:
        return NONE
    if abs(value) >= _HUNDRED:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= _TEN else f"{value:.2f}"


def moment(seconds: float) -> str:
    """A moment in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(seconds: float) -> str:
    """A duration in words."""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{seconds:.1f} s"  # noqa: PLR2004 - a minute
