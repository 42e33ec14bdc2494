"""Alarms on a clock that the test moves."""

from __future__ import annotations

import json
from typing import Any

from local_aws.testing.scaling_stage import START, Stage, played

TOPIC = "arn:aws:sns:us-east-1:123456789012:t"


def test_a_new_alarm_has_too_little_data_and_then_follows_its_metric() -> None:
    """An alarm starts in INSUFFICIENT_DATA, follows its metric, and sends each change with its reason."""

    async def scene(stage: Stage) -> None:
        await stage.alarm()
        assert stage.alarms.state("a") == "INSUFFICIENT_DATA"
        await stage.pass_time(60, lambda: stage.record("m", 5))
        assert stage.alarms.in_alarm(["a", "other"]) == ["a"]
        assert "1 out of the last 1 datapoints [5.0] was greater than or equal to" in reason(stage)
        await stage.pass_time(60, lambda: stage.record("m", 0))
        assert "[0.0] was not greater than or equal to the threshold (1.0)" in reason(stage)
        await stage.pass_time(180)

    stage = played(scene)
    assert [state for _, state in stage.services.states] == ["INSUFFICIENT_DATA", "ALARM", "OK", "INSUFFICIENT_DATA"]


def reason(stage: Stage) -> str:
    """The reason of the state of alarm `a`."""
    return str(stage.services.alarms["a"]["StateReason"])


def test_a_standard_alarm_is_looked_at_each_minute_and_a_fast_one_each_ten_seconds() -> None:
    """A fast alarm is evaluated every ten seconds, and a standard one every minute."""

    async def scene(stage: Stage) -> None:
        await stage.alarm(AlarmName="slow")
        await stage.alarm(AlarmName="fast", Period=10)
        await stage.work()
        stage.record("m", 5)
        await stage.pass_time(10)
        assert stage.alarms.in_alarm(["slow", "fast"]) == ["fast"]
        assert stage.alarms.next_due() == START + 20
        await stage.pass_time(50)
        assert stage.alarms.in_alarm(["slow"]) == ["slow"]

    played(scene)


def test_datapoints_to_alarm_and_percentiles() -> None:
    """2 of 3 minutes with a p90 above the threshold set off the alarm."""

    async def scene(stage: Stage) -> None:
        await stage.alarm(
            Statistic=None, ExtendedStatistic="p90", EvaluationPeriods=3, DatapointsToAlarm=2, Threshold=100.0
        )
        for values in ((1, 200), (1, 2), (1, 200)):
            assert stage.alarms.in_alarm(["a"]) == []
            for value in values:
                stage.record("m", value)
            await stage.pass_time(60)
        assert stage.alarms.in_alarm(["a"]) == ["a"]

    played(scene)


def test_a_percentile_of_few_values_can_be_left_alone() -> None:
    """With EvaluateLowSampleCountPercentile=ignore a p99 of less than 1,000 values changes no state."""

    async def scene(stage: Stage) -> None:
        few = {"Statistic": None, "ExtendedStatistic": "p99", "EvaluateLowSampleCountPercentile": "ignore"}
        await stage.alarm(**few)
        await stage.pass_time(60, lambda: stage.record("m", 5))
        assert stage.alarms.state("a") == "INSUFFICIENT_DATA"
        for _ in range(1000):
            stage.record("m", 5)
        await stage.pass_time(60)
        assert stage.alarms.state("a") == "ALARM"

    played(scene)


def test_metric_math() -> None:
    """An alarm on a rate of two metrics uses the one query that returns data."""

    async def scene(stage: Stage) -> None:
        await stage.alarm(Metrics=queries("100 * errors / calls"), Threshold=10.0)
        for _ in range(9):
            stage.record("calls", 1)
        stage.record("errors", 1)
        await stage.pass_time(60)
        assert stage.alarms.state("a") == "ALARM"

    played(scene)


def queries(expression: str) -> list[dict[str, Any]]:
    """Return sums of the metrics `calls` and `errors`, and an expression of them."""
    dimensions = [{"Name": "InferenceComponentName", "Value": "c"}]
    stats = [
        {
            "Id": name,
            "ReturnData": False,
            "MetricStat": {
                "Metric": {"Namespace": "AWS/SageMaker", "MetricName": name, "Dimensions": dimensions},
                "Period": 60,
                "Stat": "Sum",
            },
        }
        for name in ("calls", "errors")
    ]
    return [*stats, {"Id": "e", "Expression": expression, "ReturnData": True}]


def test_what_cannot_be_evaluated_says_so() -> None:
    """An alarm that the emulator cannot evaluate says so in its reason, and other alarms work."""

    async def scene(stage: Stage) -> None:
        await stage.alarm(AlarmName="math", Metrics=queries("RATE(calls)"))
        await stage.alarm(AlarmName="circle", Metrics=queries("e + nobody"))
        await stage.alarm(AlarmName="trimmed", Statistic="tm90")
        await stage.alarm(AlarmName="band", ComparisonOperator="GreaterThanUpperThreshold")
        await stage.alarm()
        await stage.pass_time(60, lambda: stage.record("m", 5))
        assert stage.alarms.state("a") == "ALARM"
        for name, what in (("math", "RATE"), ("circle", "nobody"), ("trimmed", "tm90"), ("band", "GreaterThanUpper")):
            assert what in stage.services.alarms[name]["StateReason"]
            assert stage.services.alarms[name]["StateValue"] == "INSUFFICIENT_DATA"

    played(scene)


def test_a_topic_is_told_once_of_each_state_that_asks_for_it() -> None:
    """Each change of state is published once, with CloudWatch's members."""

    async def scene(stage: Stage) -> None:
        await stage.alarm(AlarmActions=[TOPIC], OKActions=[TOPIC], InsufficientDataActions=[TOPIC])
        await stage.pass_time(180, lambda: stage.record("m", 5))
        await stage.pass_time(120, lambda: stage.record("m", 0))
        await stage.pass_time(180)

    messages = played(scene).services.published
    told = [json.loads(message["Message"]) for message in messages]
    assert [(one["OldStateValue"], one["NewStateValue"]) for one in told] == [
        ("INSUFFICIENT_DATA", "ALARM"),
        ("ALARM", "OK"),
        ("OK", "INSUFFICIENT_DATA"),
    ]
    assert messages[0]["Subject"] == 'ALARM: "a" in us-east-1'
    assert messages[0]["TopicArn"] == TOPIC
    assert told[0]["Trigger"]["MetricName"] == "m"
    assert told[0]["Trigger"]["Dimensions"] == [{"name": "InferenceComponentName", "value": "c"}]


def test_switched_off_actions_do_nothing() -> None:
    """An alarm with disabled actions changes its state without an action."""

    async def scene(stage: Stage) -> None:
        await stage.alarm(AlarmActions=[TOPIC], ActionsEnabled=False)
        await stage.pass_time(60, lambda: stage.record("m", 5))
        assert stage.alarms.state("a") == "ALARM"

    assert played(scene).services.published == []


def test_a_changed_alarm_keeps_its_state_and_one_set_by_hand_acts() -> None:
    """PutMetricAlarm keeps the state, and SetAlarmState triggers actions."""

    async def scene(stage: Stage) -> None:
        await stage.alarm()
        await stage.pass_time(60, lambda: stage.record("m", 5))
        await stage.alarm(AlarmActions=[TOPIC])
        assert stage.services.alarms["a"]["StateValue"] == "ALARM"
        stage.services.set_alarm_state(AlarmName="a", StateValue="OK", StateReason="by hand")
        stage.services.set_alarm_state(AlarmName="a", StateValue="ALARM", StateReason="a drill")
        stage.alarms.mark_changed()
        await stage.work()
        assert stage.services.published == []
        await stage.alarm(AlarmName="b", AlarmActions=[TOPIC])
        stage.services.set_alarm_state(AlarmName="b", StateValue="ALARM", StateReason="a drill")
        stage.alarms.mark_changed()
        await stage.work()

    (message,) = played(scene).services.published
    assert json.loads(message["Message"])["NewStateReason"] == "a drill"


def test_a_deleted_alarm_is_forgotten_and_without_alarms_nothing_is_due() -> None:
    """A deleted alarm is no longer evaluated, even if it is deleted between two evaluations."""

    async def scene(stage: Stage) -> None:
        assert stage.alarms.next_due() is None
        await stage.alarm()
        del stage.services.alarms["a"]
        await stage.pass_time(60, lambda: stage.record("m", 5))
        assert stage.alarms.state("a") is None
        assert stage.alarms.next_due() is None

    played(scene)
