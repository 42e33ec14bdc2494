"""How many calls run at once, as the metrics that fast scaling goes by tell it.

AWS: "Amazon SageMaker AI metrics in Amazon CloudWatch", ConcurrentRequestsPerModel and ConcurrentRequestsPerCopy; a
value every ten seconds, and zeros too, since scaling in waits for them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local_aws.sagemaker.metrics import Meter
    from local_aws.scaling.clock import Clock


class ConcurrencyGauge:
    """Counts calls; `report` records the most that ran at once since the last report, divided by the capacity."""

    def __init__(self, meter: Meter, metric: str, interval_s: float, clock: Clock) -> None:
        self._meter = meter
        self._metric = metric
        self._interval_s = interval_s
        self._clock = clock
        self._running = 0
        self._peak = 0
        self._next_report = 0.0

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Count a call for as long as it runs."""
        self._running += 1
        self._peak = max(self._peak, self._running)
        try:
            yield
        finally:
            self._running -= 1

    def report(self, capacity: int) -> None:
        """Record a value if it is time; `capacity` is how many instances or copies there are, none give no value."""
        now = self._clock.now()
        if capacity == 0 or now < self._next_report:
            return
        self._meter.count(self._metric, self._peak / capacity)
        self._peak, self._next_report = self._running, now + self._interval_s
