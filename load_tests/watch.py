"""Watches the generator itself: its share of a core, and how late its timers fire."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import gevent

from load_tests.clock import now

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL_S = 0.02
TICK_S = 1.0


def watch(record: Callable[[tuple[float, int, float, float, float]], None], rank: Callable[[], int]) -> None:
    """Look at this process once a second, for ever: a row of TICK each time.

    A timer that fires late says how long an answer waits until its greenlet gets to read the clock, so the mean of
    these delays is what the generator itself adds to a latency.
    """
    while True:
        started, cpu, late = time.perf_counter(), time.process_time(), []
        while time.perf_counter() - started < TICK_S:
            asleep = time.perf_counter()
            gevent.sleep(INTERVAL_S)
            late.append(max(0.0, time.perf_counter() - asleep - INTERVAL_S))
        share = (time.process_time() - cpu) / (time.perf_counter() - started)
        record((now(), rank(), share, sum(late) / len(late), max(late)))
