"""Scheduled actions when they are due, and bounds that could not be kept when they were set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from local_aws.scaling.queries import next_due

if TYPE_CHECKING:
    from local_aws.scaling.clock import Clock
    from local_aws.scaling.records import Registry, ScheduledAction, Target
    from local_aws.scaling.scaler import Scaler

_RETRY_S: Final = 60


class Timetable:
    """Carries scheduled actions out, and once a minute looks at targets that are outside of their bounds."""

    def __init__(self, registry: Registry, scaler: Scaler, clock: Clock) -> None:
        self._registry = registry
        self._scaler = scaler
        self._clock = clock
        self._retried = 0.0

    def next_due(self) -> float | None:
        """When there is something to do next, by the clock; None for never."""
        times = [action.due for target in self._registry for action in target.actions.values()]
        if any(target.outside for target in self._registry):
            times.append(self._retried + _RETRY_S)
        return min((time for time in times if time is not None), default=None)

    def run(self) -> None:
        """Do what is due."""
        now = self._clock.now()
        for target in self._registry:
            for action in target.actions.values():
                if action.due is not None and action.due <= now:
                    action.due = next_due(action, now)
                    self._carry_out(target, action)
        if now >= self._retried + _RETRY_S:
            self._retried = now
            for target in self._registry:
                if target.outside:
                    self._scaler.keep_within_bounds(target)

    def _carry_out(self, target: Target, action: ScheduledAction) -> None:
        if target.suspended.get("ScheduledScalingSuspended"):
            return
        bounds = action.definition["ScalableTargetAction"]
        target.minimum = bounds.get("MinCapacity", target.minimum)
        target.maximum = bounds.get("MaxCapacity", target.maximum)
        target.occasion = f"scheduled action name {action.name} was triggered, "
        self._scaler.keep_within_bounds(target)
