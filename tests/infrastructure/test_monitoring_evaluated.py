"""The alarms that every stack has, evaluated period by period on the local AWS's CloudWatch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from synthesis import make_catalog, make_stack, resources, template_of

from local_aws.testing.scaling_stage import played

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.scaling_stage import Stage

HOUR = 3600
HOURS = 12
OF_ENDPOINT = (("EndpointName", "lmi-cohost"), ("VariantName", "AllTraffic"))


@pytest.fixture(scope="module")
def unasked() -> dict[str, dict[str, Any]]:
    """The alarms of a stack that asks for none, by the catalog's key, with a topic's ARN."""
    alarms = resources(template_of(make_stack(make_catalog())), "AWS::CloudWatch::Alarm").values()
    named = {one["Properties"]["AlarmDescription"].rpartition(".")[2].rstrip(")"): one["Properties"] for one in alarms}
    topic = ["arn:aws:sns:us-east-1:123456789012:t"]
    return {key: {**alarm, "AlarmName": key, "AlarmActions": topic} for key, alarm in named.items()}


@pytest.fixture(scope="module")
def idle(unasked: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the alarm of an endpoint that nobody calls."""
    return unasked["idle_hours"]


@pytest.fixture(scope="module")
def refused(unasked: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The alarm of calls that are answered with 4xx."""
    return unasked["client_errors_percent"]


def story(idle: dict[str, Any], *hours: str) -> list[str]:
    """Return the alarm's messages for hours that are "busy" (with a call), "idle" (an instance) or "gone"."""

    def instance(stage: Stage) -> None:
        stage.metrics.record(("/aws/sagemaker/Endpoints", "CPUUtilization", OF_ENDPOINT), "None", 3.0, fine=False)

    def call(stage: Stage) -> None:
        instance(stage)
        stage.metrics.record(("AWS/SageMaker", "Invocations", OF_ENDPOINT), "Count", 1.0, fine=False)

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
    """The idle alarm of an endpoint without any call fires after its hours, and not before."""
    assert "ALARM" not in story(idle, *["idle"] * (HOURS - 1))
    assert story(idle, *["idle"] * (HOURS + 2)).count("ALARM") == 1


def test_one_call_in_the_time_is_enough(idle: dict[str, Any]) -> None:
    """The idle alarm does not fire if there is one call in its time."""
    assert "ALARM" not in story(idle, *["idle"] * 8, "busy", *["idle"] * 8, "busy")


def test_forgotten_after_use_is_told_of_and_taken_back(idle: dict[str, Any]) -> None:
    """The idle alarm fires after hours without a call, and ends with the next call."""
    told = story(idle, "busy", *["idle"] * (HOURS + 2), "busy", "busy")
    assert told.count("ALARM") == 1
    assert told[-1] == "OK"


def test_endpoint_that_is_gone_is_not_idle(idle: dict[str, Any]) -> None:
    """The idle alarm sends no message for an endpoint that was deleted or is at zero."""
    assert "ALARM" not in story(idle, "busy", *["gone"] * (2 * HOURS))
    assert "ALARM" not in story(idle, *["gone"] * (2 * HOURS))


def refusals(refused: dict[str, Any], *minutes: tuple[int, int]) -> list[str]:
    """Return the alarm's messages for minutes given as numbers of calls and of their 4xx answers."""
    metric = ("AWS/SageMaker", "Invocation4XXErrors", OF_ENDPOINT)

    async def scene(stage: Stage) -> None:
        stage.services.put_metric_alarm(**refused)
        stage.alarms.mark_changed()
        await stage.alarms.refresh()
        for calls, bad in minutes:
            stage.machine += 30
            for number in range(calls):
                stage.metrics.record(metric, "None", float(number < bad), fine=False)
            stage.machine += 30
            await stage.work()

    return [state for _, state in played(scene).services.states]


def test_dead_model_among_three_is_told_of(refused: dict[str, Any]) -> None:
    """If a third of the calls gets 4xx, the alarm fires once within half an hour."""
    assert refusals(refused, *[(9, 0)] * 10, *[(9, 3)] * 30).count("ALARM") == 1


def test_alarm_ends_when_the_model_answers_again(refused: dict[str, Any]) -> None:
    """The alarm sends a message when the model answers again."""
    told = refusals(refused, *[(9, 3)] * 30, *[(9, 0)] * 30)
    assert told[-1] == "OK"


@pytest.mark.parametrize(
    "minutes",
    [[(9, 9)] * 4 + [(9, 0)] * 30, [(20, 2)] * 40, [(9, 0)] * 40, [(0, 0)] * 40],
    ids=["one bad caller for four minutes", "no more than a tenth", "none", "no calls at all"],
)
def test_what_is_no_sustained_share_is_not_told_of(refused: dict[str, Any], minutes: list[tuple[int, int]]) -> None:
    """Some minutes of bad requests, few 4xx answers, or no calls do not fire the alarm."""
    assert "ALARM" not in refusals(refused, *minutes)
