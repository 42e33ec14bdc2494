"""What the replay takes for granted of a service: how fast a copy is, how long starting and going take."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from cohost.catalog.sections.scaling import TRACKING_TAIL_MINUTES
from cohost.errors import SimulationError

if TYPE_CHECKING:
    from cohost.catalog.sections.scaling import Metric


ALARM_PERIOD_S: Final = 60.0
"""The alarm on refused calls looks at whole minutes."""

MEASURED_RATE: Final = 39.0
"""Requests a second with eight callers of one text each: three encoders on one ml.g5.xlarge, 512 tokens, 2026-08."""

MEASURED_SERVICE_S: Final = 0.0497
"""The p50 of a caller that is alone, of the same measurement."""

MEASURED_WAKE_S: Final = 564.0
"""From the first refused call to the first answer, measured by others on ml.g5.xlarge: 9 min 24 s."""

MEASURED_IDLE_TAIL_S: Final = 660.0
MEASURED_INSTANCE_TAIL_S: Final = 720.0
"""Of the same source: 11 minutes without a call until the last copy is given up, 12 more until its instance is gone."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """The figures of a service; times in seconds.

    `requests_per_second`: what one copy, or one instance of a multi-model endpoint, answers at most.
    `service_s`: how long an answer takes when nobody else calls.
    `wake_s`: from the first call refused at zero copies to the first answer, the alarm counted in.
    `start_s`: from any other decision to grow until the new copy or instance answers; None: `wake_s` without the alarm.
    `idle_tail_s`: without a call until target tracking gives up the last copy; None: as measured where concurrency is
    tracked, and the minutes of the alarm where invocations are.
    `instance_tail_s`: from giving up a copy until its instance is gone and bills no more; scale-to-zero only.
    `call_timeout_s`: the longest that a call waits in an overloaded server; SageMaker ends it after 60 seconds.
    `wake_timeout_s`: the longest that a waiting caller tries again at zero copies.
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
        """Refuse figures that no service has.

        Raises:
            SimulationError: one is not above 0, or 0 where that is allowed, or `wake_s` is shorter than the alarm.
        """
        may_be_zero = {"start_s", "instance_tail_s", "wake_timeout_s"}
        for name in (one.name for one in fields(self)):
            value = getattr(self, name)
            if value is not None and not (value > 0 or (value == 0 and name in may_be_zero)):
                allowed = "0 or more" if name in may_be_zero else "above 0"
                raise SimulationError(f"{name}: {value:g} is not allowed; allowed: {allowed}; fix: give a measured one")
        if self.wake_s < ALARM_PERIOD_S:
            raise SimulationError(
                f"wake_s: {self.wake_s:g} is not allowed; allowed: {ALARM_PERIOD_S:g} or more, for the alarm alone "
                "looks at a whole minute; fix: give the time from the first refused call to the first answer"
            )

    @property
    def growth_s(self) -> float:
        """From a decision to grow until the new copy or instance answers."""
        return self.wake_s - ALARM_PERIOD_S if self.start_s is None else self.start_s

    def tail_s(self, metric: Metric) -> float:
        """Without a call until target tracking gives up the last copy."""
        if self.idle_tail_s is not None:
            return self.idle_tail_s
        return MEASURED_IDLE_TAIL_S if metric == "concurrency" else TRACKING_TAIL_MINUTES[metric] * 60.0

    @property
    def calls_per_minute(self) -> float:
        """What one copy or instance answers in a minute at most."""
        return self.requests_per_second * 60
