"""What state the data of an alarm make of it (CloudWatch user guide: "Alarm evaluation", "Configuring how CloudWatch
alarms treat missing data").

CloudWatch looks at more periods than it evaluates, so that late data do not count as missing; the guide's tables show
two more. A period without data among the evaluated ones is made up for by an older one with data, and only if those
do not suffice by what the alarm says of missing data.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]

LOOKED_BACK_MORE: Final = 2
COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanOrEqualToThreshold": operator.le,
    "LessThanThreshold": operator.lt,
}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How data are judged: so many of so many periods must breach the threshold, and what missing ones count as."""

    comparison: str
    threshold: float
    periods: int
    to_alarm: int
    missing: str

    def breaches(self, value: float) -> bool:
        """Whether a value is on the wrong side of the threshold."""
        return COMPARISONS[self.comparison](value, self.threshold)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A state, None where the alarm keeps the one it has; the values that were evaluated, and how many were missing."""

    state: State | None
    values: Sequence[float]
    missing: int


def judge(rule: Rule, data: Sequence[float | None]) -> Verdict:
    """The verdict on data, one for each period with the newest last, `LOOKED_BACK_MORE` more than are evaluated."""
    there = [value for value in data if value is not None]
    if len(there) >= rule.periods:
        values = there[-rule.periods :]
        alarm = sum(map(rule.breaches, values)) >= rule.to_alarm
        return Verdict(state="ALARM" if alarm else "OK", values=values, missing=0)
    return Verdict(state=_with_gaps(rule, data, there), values=there, missing=rule.periods - len(there))


def _with_gaps(rule: Rule, data: Sequence[float | None], there: Sequence[float]) -> State | None:
    breaching = sum(map(rule.breaches, there))
    fine = len(there) - breaching
    if breaching >= rule.to_alarm:
        return "ALARM"
    if rule.periods - fine < rule.to_alarm:
        return "OK"
    return _by_treatment(rule, data, fine=fine)


def _by_treatment(rule: Rule, data: Sequence[float | None], *, fine: int) -> State | None:
    """The state where the missing data decide; `fine` of those that are there do not breach."""
    if rule.missing == "breaching":
        return "ALARM"
    if rule.missing == "notBreaching" or fine:
        return "OK"
    if rule.missing == "ignore":
        return None
    # All that is there breaches. It is an alarm once the first of it is old enough, since nothing has contradicted it.
    first = next((index for index, value in enumerate(data) if value is not None), None)
    if first is None:
        return "INSUFFICIENT_DATA"
    return "ALARM" if len(data) - first >= rule.to_alarm else None
