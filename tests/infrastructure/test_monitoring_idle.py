"""The product's own idle alarm, evaluated hour by hour on the local AWS's CloudWatch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scaling_stage import played
from synthesis import make_catalog, make_stack, resources, template_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaling_stage import Stage

HOUR = 3600
HOURS = 12
OF_ENDPOINT = (("EndpointName", "lmi-cohost"), ("VariantName", "AllTraffic"))


@pytest.fixture(scope="module")
def idle() -> dict[str, Any]:
    """The alarm as the template has it, with a topic's ARN."""
    template = template_of(make_stack(make_catalog()))
    (alarm,) = resources(template, "AWS::CloudWatch::Alarm").values()
    return {**alarm["Properties"], "AlarmName": "idle", "AlarmActions": ["arn:aws:sns:us-east-1:123456789012:t"]}


def story(idle: dict[str, Any], *hours: str) -> list[str]:
    """What the alarm told, hour by hour: "busy" has a call and an instance, "idle" an instance, "gone" neither."""

    def instance(stage: Stage) -> None:
        stage.history.record(("/aws/sagemaker/Endpoints", "CPUUtilization", OF_ENDPOINT), "None", 3.0, fine=False)

    def call(stage: Stage) -> None:
        instance(stage)
        stage.history.record(("AWS/SageMaker", "Invocations", OF_ENDPOINT), "Count", 1.0, fine=False)

    happenings: dict[str, Callable[[Stage], None]] = {"busy": call, "idle": instance, "gone": lambda _: None}

    async def scene(stage: Stage) -> None:
        stage.services.put_metric_alarm(**idle)
        stage.alarms.mark_changed()
        await stage.alarms.refresh()
        for hour in hours:
            for _ in range(4):
                stage.machine += HOUR // 8
                happenings[hour](stage)
                stage.machine += HOUR // 8
                await stage.work()

    return [state for _, state in played(scene).services.states]


def test_endpoint_that_nobody_ever_called_is_told_of(idle: dict[str, Any]) -> None:
    """No call means no metric of calls at all; the alarm goes off after its hours and not before."""
    assert "ALARM" not in story(idle, *["idle"] * (HOURS - 1))
    assert story(idle, *["idle"] * (HOURS + 2)).count("ALARM") == 1


def test_one_call_in_the_time_is_enough(idle: dict[str, Any]) -> None:
    """A quiet night between two working days is no forgotten endpoint."""
    assert "ALARM" not in story(idle, *["idle"] * 8, "busy", *["idle"] * 8, "busy")


def test_forgotten_after_use_is_told_of_and_taken_back(idle: dict[str, Any]) -> None:
    """Hours without a call after some with; the next call ends the alarm."""
    told = story(idle, "busy", *["idle"] * (HOURS + 2), "busy", "busy")
    assert told.count("ALARM") == 1
    assert told[-1] == "OK"


def test_endpoint_that_is_gone_is_not_idle(idle: dict[str, Any]) -> None:
    """Deleted, expired or at zero: nothing bills, nothing is told."""
    assert "ALARM" not in story(idle, "busy", *["gone"] * (2 * HOURS))
    assert "ALARM" not in story(idle, *["gone"] * (2 * HOURS))
