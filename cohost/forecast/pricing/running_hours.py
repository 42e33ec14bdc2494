"""State the timing of an endpoint for the simulation: a copy's speed, and its times to start and to stop.

Some defaults were published by others, who measured an earlier system; the other defaults are AWS's. Each default names
its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cohost.endpoint.scaling_rules import TAIL_MINUTES
from cohost.errors import SimulationError

if TYPE_CHECKING:
    from cohost.catalog.sections.scaling import Metric


ALARM_PERIOD_S: Final = 60.0
"""Seconds in the period of the alarm on refused calls."""

PUBLISHED_RATE: Final = 39.0
"""Requests per second of three encoders on one ml.g5.xlarge: eight callers, one text of 512 tokens a call, 2026-08.

Published by others, of an earlier system.
"""

PUBLISHED_SERVICE_S: Final = 0.0497
"""The p50 latency of a single caller in seconds, in the measurement of `PUBLISHED_RATE`."""

PUBLISHED_WAKE_S: Final = 564.0
"""Seconds from the first refused call to the first answer: 9 min 24 s, published by others for ml.g5.xlarge."""

PUBLISHED_INSTANCE_TAIL_S: Final = 720.0
"""Seconds from the removal of the last copy until its instance is gone: 12 minutes, by `PUBLISHED_WAKE_S`'s source."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """The timing of an endpoint; all times are in seconds.

    `requests_per_second`: the highest rate of one copy, or of one instance of a multi-model endpoint.
    `service_s`: the latency of a single caller.
    `wake_s`: the time from the first call refused at zero copies to the first answer, with the alarm's delay.
    `start_s`: the time from a scale-out decision at one copy or more until the new copy or instance answers; None means
    `wake_s` less the alarm's period.
    `idle_tail_s`: the time without a call until target tracking removes the last copy; None means the time after which
    target tracking's alarm on low values enters ALARM.
    `instance_tail_s`: the time from removing a copy until its instance is no longer billed; scale-to-zero only.
    `call_timeout_s`: the longest wait of a call in an overloaded server; SageMaker ends a call after 60 seconds.
    `wake_timeout_s`: the longest time for which a waiting caller retries at zero copies.
    """

    requests_per_second: float = PUBLISHED_RATE
    service_s: float = PUBLISHED_SERVICE_S
    wake_s: float = PUBLISHED_WAKE_S
    start_s: float | None = None
    idle_tail_s: float | None = None
    instance_tail_s: float = PUBLISHED_INSTANCE_TAIL_S
    call_timeout_s: float = 60.0
    wake_timeout_s: float = 900.0

    def __post_init__(self) -> None:
        """Reject impossible timings.

        Raises:
            SimulationError: a value is not above 0 (`start_s`, `instance_tail_s` and `wake_timeout_s` may be 0), or
                `wake_s` is shorter than the alarm's period.
        """
        least = {"start_s": 0, "instance_tail_s": 0, "wake_timeout_s": 0, "wake_s": ALARM_PERIOD_S}
        for name, value in vars(self).items():
            fits = value is None or (value >= least[name] if name in least else value > 0)
            if not fits:
                allowed = f"{least[name]:g} or more" if name in least else "above 0"
                raise SimulationError(
                    "figure-range", name, f"got {value:g}", allowed=allowed, fix="give a measured one"
                )

    @property
    def growth_s(self) -> float:
        """Return the seconds from a scale-out decision until the new copy or instance answers."""
        return self.wake_s - ALARM_PERIOD_S if self.start_s is None else self.start_s

    def tail_s(self, metric: Metric) -> float:
        """Return the seconds without a call after which target tracking on this metric removes the last copy."""
        if self.idle_tail_s is not None:
            return self.idle_tail_s
        return TAIL_MINUTES[metric] * 60.0
