"""The texts about an alarm's state change: the state reason, and the message to an SNS topic.

The message has the members of CloudWatch's own message (user guide: "Notifying users on alarm changes").
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from local_aws.cloudwatch.alarms import Alarm, Evaluation, State


_SUBJECT_LIMIT: Final = 100
_SHOWN: Final = 20
_WORDS: Final = {
    "GreaterThanOrEqualToThreshold": "greater than or equal to",
    "GreaterThanThreshold": "greater than",
    "LessThanOrEqualToThreshold": "less than or equal to",
    "LessThanThreshold": "less than",
}
_TRIGGER: Final = (
    "MetricName", "Namespace", "Statistic", "ExtendedStatistic", "Unit", "Period", "EvaluationPeriods",
    "DatapointsToAlarm", "ComparisonOperator", "Threshold", "TreatMissingData", "EvaluateLowSampleCountPercentile",
    "Metrics",
)  # fmt: skip


def reason_of(alarm: Alarm, evaluation: Evaluation, state: State) -> str:
    """Return the text of an alarm's state reason, from the data that led to the state."""
    rule = alarm.rule
    if state == "INSUFFICIENT_DATA":
        return f"Insufficient Data: {evaluation.missing} {_datapoints(evaluation.missing)} were unknown."
    if not evaluation.values:
        missing = f"{evaluation.missing} missing {_datapoints(evaluation.missing)}"
        return (
            f"Threshold Crossed: no datapoints were received for {rule.periods} period{'s' * (rule.periods > 1)} and "
            f"{missing} were treated as [{rule.missing.capitalize()}]."
        )
    breaching = [value for value in evaluation.values if rule.breaches(value) == (state == "ALARM")]
    values, verb = breaching or evaluation.values, "was" if len(breaching) == 1 else "were"
    shown = ", ".join(str(float(value)) for value in values[-_SHOWN:])
    return (
        f"Threshold Crossed: {len(values)} out of the last {rule.periods} datapoints [{shown}] {verb} "
        f"{'' if state == 'ALARM' else 'not '}{_WORDS[rule.comparison]} the threshold ({rule.threshold})."
    )


def reason_data(alarm: Alarm, evaluation: Evaluation) -> str:
    """Return the StateReasonData of an alarm: the reason of its state as JSON, for programs."""
    members = {
        "version": "1.0",
        "queryDate": _stamp(),
        "period": alarm.period,
        "recentDatapoints": list(evaluation.values),
        "threshold": alarm.rule.threshold,
    }
    return json.dumps(members)


def subject(alarm: Alarm, region: str) -> str:
    """Return the subject of an e-mail about the alarm's new state."""
    return f'{alarm.state}: "{alarm.name}" in {region}'[:_SUBJECT_LIMIT]


def message(alarm: Alarm, *, old: State, reason: str, account_id: str, region: str) -> str:
    """Return the SNS message, as JSON, about an alarm whose state has just changed from `old`."""
    described = alarm.described
    members = {
        "AlarmName": alarm.name,
        "AlarmDescription": described.get("AlarmDescription"),
        "AWSAccountId": account_id,
        "NewStateValue": alarm.state,
        "NewStateReason": reason,
        "StateChangeTime": _stamp(),
        "Region": region,
        "AlarmArn": described["AlarmArn"],
        "OldStateValue": old,
        **{key: described.get(key, []) for key in ("OKActions", "AlarmActions", "InsufficientDataActions")},
        "Trigger": _trigger(alarm),
    }
    return json.dumps(members)


def _trigger(alarm: Alarm) -> dict[str, Any]:
    described = alarm.described
    dimensions = [{"name": one["Name"], "value": one["Value"]} for one in described.get("Dimensions", [])]
    return {**{key: described[key] for key in _TRIGGER if described.get(key)}, "Dimensions": dimensions}


def _stamp() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "+0000")


def _datapoints(count: int) -> str:
    return "datapoint" if count == 1 else "datapoints"
