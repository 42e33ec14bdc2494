"""The interface between CloudWatch's alarms and the service that carries out their actions.

CloudWatch evaluates alarms but does not know scaling policies; Application Auto Scaling has policies but knows only the
names of alarms. So the server passes a function `AlarmActions` from Application Auto Scaling to CloudWatch, and a
function `AlarmsInAlarm` from CloudWatch to Application Auto Scaling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, kw_only=True)
class AlarmTrigger:
    """One alarm action that is due now, with the alarm's data that the action may need.

    CloudWatch triggers a scaling policy when the alarm enters a state whose actions include the policy, and again each
    minute while the state lasts (CloudWatch user guide: "Alarm actions").

    Args:
        action: the ARN in the alarm's list of actions, e.g. a scaling policy's.
        alarm: the alarm's name.
        state: the alarm's state, e.g. ALARM.
        values: the evaluated values of the metric, the newest last; empty if only missing data decided.
        threshold: the alarm's threshold.
        comparison: the alarm's ComparisonOperator, e.g. GreaterThanThreshold.
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
        """True if values above the threshold, not values below it, set the alarm to ALARM."""
        return self.comparison.startswith("Greater")


class AlarmActions(Protocol):
    """The function that carries out the actions of one or more alarms that were triggered at the same time.

    The function ignores alarm actions that belong to other services.
    """

    async def __call__(self, triggers: Sequence[AlarmTrigger], /) -> None:
        """Carry out the actions that the triggers name."""


class AlarmsInAlarm(Protocol):
    """The function that finds which alarms are in the state ALARM."""

    def __call__(self, names: Iterable[str], /) -> list[str]:
        """Return those of the given alarm names whose alarm is now in the state ALARM."""
