"""Small traces and rules that the tests of the simulation share."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from cohost.forecast.simulation.rules import Rules
from cohost.forecast.simulation.traces import Trace
from cohost.routing import MULTI_MODEL, SCALE_TO_ZERO

if TYPE_CHECKING:
    from collections.abc import Sequence

START = dt.datetime(2027, 1, 4, tzinfo=dt.UTC)


def trace(counts: Sequence[int]) -> Trace:
    """A trace of calls by minute, from a Monday's midnight on."""
    return Trace(name="a test", start=START, counts=counts)


def rules(topology: str, **changes: Any) -> Rules:
    """Return rules with one copy or instance at most and tracked concurrency, with the given changes."""
    settings: dict[str, Any] = {"min": 0 if topology == SCALE_TO_ZERO else 1, "max": 1, "metric": "concurrency"}
    settings |= {"target": 4.0, "scale_in_cooldown": 300, "scale_out_cooldown": 60}
    return Rules(topology=topology, **{**settings, **changes})


def zero(**changes: Any) -> Rules:
    """Rules of scale-to-zero."""
    return rules(SCALE_TO_ZERO, **changes)


def multi(**changes: Any) -> Rules:
    """Rules of a multi-model endpoint."""
    return rules(MULTI_MODEL, **changes)
