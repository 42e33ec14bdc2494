"""The state of an alarm that follows from data."""

from __future__ import annotations

import pytest

from local_aws.cloudwatch.alarms import Rule
from local_aws.cloudwatch.evaluation import evaluate

TREATMENTS = ("missing", "ignore", "breaching", "notBreaching")


def states(data: str, *, periods: int, to_alarm: int) -> list[str | None]:
    """The states for each treatment of missing data; X breaches, 0 does not, - is missing. None keeps the state."""
    values = [{"X": 2.0, "0": 0.0, "-": None}[one] for one in data]
    rules = [
        Rule(comparison="GreaterThanThreshold", threshold=1, periods=periods, to_alarm=to_alarm, missing=treatment)
        for treatment in TREATMENTS
    ]
    return [evaluate(rule, values).state for rule in rules]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("0-X-X", ["OK", "OK", "OK", "OK"]),
        ("0----", ["OK", "OK", "OK", "OK"]),
        ("-----", ["INSUFFICIENT_DATA", None, "ALARM", "OK"]),
        ("0XX-X", ["ALARM", "ALARM", "ALARM", "ALARM"]),
        ("--X--", ["ALARM", None, "ALARM", "OK"]),
    ],
)
def test_three_of_three(data: str, expected: list[str | None]) -> None:
    """The states equal the table of CloudWatch's guide for 3 of 3 datapoints."""
    assert states(data, periods=3, to_alarm=3) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("0-X-X", ["ALARM", "ALARM", "ALARM", "ALARM"]),
        ("00X0X", ["ALARM", "ALARM", "ALARM", "ALARM"]),
        ("0-X--", ["OK", "OK", "ALARM", "OK"]),
        ("----0", ["OK", "OK", "ALARM", "OK"]),
        ("---X-", ["ALARM", None, "ALARM", "OK"]),
    ],
)
def test_two_of_three(data: str, expected: list[str | None]) -> None:
    """The states equal the table of CloudWatch's guide for 2 of 3 datapoints."""
    assert states(data, periods=3, to_alarm=2) == expected


def test_one_breach_among_missing_data_is_no_alarm_yet() -> None:
    """The guide's premature alarm: the first value of all breaches, and nothing is known of before."""
    assert states("----X", periods=3, to_alarm=3)[0] is None
    assert states("---X-", periods=3, to_alarm=3)[0] is None


def test_missing_data_count_only_after_older_data_have_run_out() -> None:
    """With missing data breaching, one empty period of an hour does not alarm yet, and three do."""
    assert [states(data, periods=1, to_alarm=1)[2] for data in ("000", "00-", "0--", "---")] == [
        "OK", "OK", "OK", "ALARM",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        ("GreaterThanThreshold", [False, False, True]),
        ("GreaterThanOrEqualToThreshold", [False, True, True]),
        ("LessThanThreshold", [True, False, False]),
        ("LessThanOrEqualToThreshold", [True, True, False]),
    ],
)
def test_comparisons(comparison: str, expected: list[bool]) -> None:
    """Each comparison operator breaches on its own side of the threshold, and two of them at the threshold itself."""
    rule = Rule(comparison=comparison, threshold=1, periods=1, to_alarm=1, missing="missing")
    assert [rule.breaches(value) for value in (0, 1, 2)] == expected
