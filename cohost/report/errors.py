"""Faults of results and reports."""

from __future__ import annotations

from cohost.errors import CohostError


class ReportError(CohostError):
    """A folder holds no result of a load test, or one that this version cannot read."""
