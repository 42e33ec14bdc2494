"""The interface between CloudWatch's alarms and the service that carries out their actions.

CloudWatch evaluates alarms but does not know scaling policies; Application Auto Scaling has policies but knows only the
names of alarms. The server passes each service a function of the other, of one of the two types below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, kw_only=True)
class AlarmTrigger:
    """One action of an alarm that is to be carried out now, with the facts that the action may depend on.

    CloudWatch triggers a scaling policy when the alarm enters a state that names it, and again each minute while the
    state lasts (CloudWatch user guide: "Alarm actions").

    Args:
        action: the ARN that the alarm names, e.g. a scaling policy's.
        alarm: the alarm's name.
        state: its state, e.g. ALARM.
        values: the values that were evaluated, the newest last; none where only missing data decided.
        threshold: the alarm's threshold.
        comparison: its ComparisonOperator, e.g. GreaterThanThreshold.
        evaluated_s: the length in seconds of all evaluated periods together.
    """

    action: str
    alarm: str
    state: str
    values: Sequence[float]
    threshold: float
    comparison: str
    evaluated_s: int

    @property
    def watches_above(self) -> bool:
        """True for an alarm that goes off by values above its threshold, not below."""
        return self.comparison.startswith("Greater")


class AlarmActions(Protocol):
    """Carries out what alarms triggered at one time; actions of other services are passed over."""

    async def __call__(self, triggers: Sequence[AlarmTrigger], /) -> None:
        """Carry out the actions."""


class AlarmsInAlarm(Protocol):
    """Looks alarms up by their names."""

    def __call__(self, names: Iterable[str], /) -> list[str]:
        """List those of the named alarms that are in the state ALARM now."""
