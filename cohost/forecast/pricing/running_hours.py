"""The timing of a service as the replay assumes it: speed of a copy, times to start and to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cohost.endpoint.scaling_rules import TAIL_MINUTES
from cohost.errors import SimulationError

if TYPE_CHECKING:
    from cohost.catalog.sections.scaling import Metric


ALARM_PERIOD_S: Final = 60.0
"""Seconds in the period of the alarm on refused calls."""

MEASURED_RATE: Final = 39.0
"""Requests per second with eight callers of one text each: three encoders on one ml.g5.xlarge, 512 tokens, 2026-08."""

MEASURED_SERVICE_S: Final = 0.0497
"""The p50 latency in seconds of a single caller, of the same measurement."""

MEASURED_WAKE_S: Final = 564.0
"""Seconds from the first refused call to the first answer, measured by others on ml.g5.xlarge: 9 min 24 s."""

MEASURED_INSTANCE_TAIL_S: Final = 720.0
"""Seconds from the removal of the last copy until its instance is gone, from the same source: 12 minutes."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """The timing of a service, in seconds.

    `requests_per_second`: the highest rate of one copy, or of one instance of a multi-model endpoint.
    `service_s`: the latency of a single caller.
    `wake_s`: from the first call refused at zero copies to the first answer, with the alarm's delay.
    `start_s`: from any other scale-out decision until the new copy or instance answers; None: `wake_s` without the
    alarm.
    `idle_tail_s`: without a call until target tracking removes the last copy; None: the minutes of its alarm.
    `instance_tail_s`: from removing a copy until its instance is gone and no longer billed; scale-to-zero only.
    `call_timeout_s`: the longest that a call waits in an overloaded server; SageMaker ends it after 60 seconds.
    `wake_timeout_s`: the longest that a waiting caller retries at zero copies.
    """

    requests_per_second: float = MEASURED_RATE
    service_s: float = MEASURED_SERVICE_S
    wake_s: float = MEASURED_WAKE_S
    start_s: float | None = None
    idle_tail_s: float | None = None
    instance_tail_s: float = MEASURED_INSTANCE_TAIL_S
    call_timeout_s: float = 60.0
    wake_timeout_s: float = 900.0

    def __post_init__(self) -> None:
        """Reject impossible figures.

        Raises:
            SimulationError: a figure is not above 0 (some may be 0), or `wake_s` is shorter than the alarm's period.
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
        """Return the seconds without a call until target tracking removes the last copy."""
        if self.idle_tail_s is not None:
            return self.idle_tail_s
        return TAIL_MINUTES[metric] * 60.0
