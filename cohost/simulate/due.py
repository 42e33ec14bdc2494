"""When the entries of a catalog's schedule are due within a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohost.scaling.schedule_times import next_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cohost.catalog.sections.scaling import ScheduledScaling
    from cohost.simulate.trace import Trace


def due_in(trace: Trace) -> Callable[[ScheduledScaling], Iterator[float]]:
    """A function that yields the seconds of a trace at which an entry is due, in order.

    A rate is counted from the trace's start, as from a deploy.
    """
    start = trace.start.timestamp()
    end = start + trace.seconds

    def due(entry: ScheduledScaling) -> Iterator[float]:
        at = next_time(entry.cron, entry.timezone, start - 1, start=start)
        while at is not None and at < end:
            yield at - start
            at = next_time(entry.cron, entry.timezone, at, start=start)

    return due
