"""Schedules that run by the emulator's clock, with fake services."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from fakes.faults import faulted

from local_aws.kit.access_keys import AccessKey, AccessKeys
from local_aws.scheduler.runner import ScheduleRunner
from local_aws.scheduler.targets import check_target
from local_aws.testing import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
DELETE = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"
ROLE = "arn:aws:iam::123456789012:role/ends"
TOPIC = "arn:aws:sns:us-east-1:123456789012:alarms"
ACTIONS = {
    "delete_endpoint": "DeleteEndpoint",
    "publish": "Publish",
    "register_scalable_target": "RegisterScalableTarget",
}


class World:
    """Scheduler's store, the target services and the clock; everything can be changed while the runner watches."""

    def __init__(self) -> None:
        self.time = START
        self.schedules: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.refusals = 0
        self.faults = 0
        self.broken = ""
        self.failures: list[tuple[str, str]] = []
        self.meta = SimpleNamespace(method_to_api_mapping=ACTIONS)

    def now(self) -> float:
        """The clock."""
        return self.time.timestamp()

    def get(self, service: str, region: str) -> World:
        """The client of every service."""
        assert region == "us-east-1"
        assert service in {"scheduler", "sagemaker", "sns", "application-autoscaling", "cloudwatch"}
        return self

    def signed_by(self, key: AccessKey, service: str, region: str) -> World:
        """The client of a target, with the key of the schedule's role."""
        assert key.principal.startswith("arn:aws:sts::123456789012:assumed-role/ends/g-")
        return self.get(service, region)

    def get_paginator(self, operation: str) -> World:
        """The paginator of the one listing."""
        assert operation == "list_schedules"
        return self

    def paginate(self) -> list[dict[str, Any]]:
        """Return one page."""
        if self.faults:
            self.faults -= 1
            raise LookupError("no such page")
        return [{"Schedules": [{"GroupName": "g", "Name": name} for name in self.schedules]}]

    def get_schedule(self, *, GroupName: str, Name: str) -> dict[str, Any]:  # noqa: N803 - boto3's names
        """A schedule as it is."""
        assert GroupName == "g"
        if Name not in self.schedules:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "GetSchedule")
        return self.schedules[Name]

    def put_metric_data(self, *, Namespace: str, MetricData: list[dict[str, Any]]) -> None:  # noqa: N803 - boto3's names
        """Keep which metric counts a failure of which group."""
        assert Namespace == "AWS/Scheduler"
        (datum,) = MetricData
        self.failures.append((datum["MetricName"], datum["Dimensions"][0]["Value"]))

    def delete_schedule(self, *, GroupName: str, Name: str) -> None:  # noqa: N803 - boto3's names
        """Forget a schedule."""
        assert GroupName == "g"
        del self.schedules[Name]

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a target's action for any other name, because a client has only actions."""
        if name not in ACTIONS:
            raise AttributeError(name)

        def call(**arguments: Any) -> None:
            self.calls.append((name, arguments))
            if name == self.broken:
                raise LookupError("unforeseen")
            if self.refusals:
                self.refusals -= 1
                raise ClientError({"Error": {"Code": "ValidationException", "Message": "in progress"}}, name)

        return call


def schedule(expression: str, **changes: Any) -> dict[str, Any]:
    """A schedule that deletes the endpoint `e`."""
    return {
        "ScheduleExpression": expression,
        "ScheduleExpressionTimezone": "UTC",
        "StartDate": None,
        "EndDate": None,
        "State": "ENABLED",
        "ActionAfterCompletion": "NONE",
        "Target": {"Arn": DELETE, "Input": '{"EndpointName": "e"}', "RoleArn": ROLE},
        **changes,
    }


class Watch:
    """A runner with its fake services, which runs due schedules when a test requests it."""

    def __init__(self) -> None:
        self.world = World()
        clients: Any = self.world
        self.runner = ScheduleRunner(clients=clients, keys=AccessKeys(), now=self.world.now)

    def put(self, **schedules: dict[str, Any]) -> None:
        """Change the store."""
        self.world.schedules.update(schedules)
        self.runner.reload("us-east-1")
        self.runner.run_due()

    def pass_time(self, **span: float) -> None:
        """Move the clock on; looking twice must not do anything twice."""
        self.world.time += timedelta(**span)
        self.runner.run_due()
        self.runner.run_due()


@pytest.fixture
def watch() -> Watch:
    """A runner with an empty store."""
    return Watch()


def test_one_time_schedule_calls_its_target_once_and_stays(watch: Watch) -> None:
    """A one-time schedule calls its target once, at its time, and stays unless DELETE is set."""
    watch.put(a=schedule("at(2026-11-30T20:00:00)"))
    watch.pass_time(hours=7, minutes=59)
    assert watch.world.calls == []
    watch.pass_time(minutes=1)
    watch.pass_time(days=3)
    assert watch.world.calls == [("delete_endpoint", {"EndpointName": "e"})]
    assert list(watch.world.schedules) == ["a"]


def test_completed_schedule_goes_where_it_says_so(watch: Watch) -> None:
    """ActionAfterCompletion DELETE removes a schedule after its last call."""
    watch.put(a=schedule("at(2026-11-30T20:00:00)", ActionAfterCompletion="DELETE"))
    watch.pass_time(hours=9)
    assert len(watch.world.calls) == 1
    assert watch.world.schedules == {}


def test_moved_schedule_fires_at_its_new_time(watch: Watch) -> None:
    """A schedule that is updated before its time runs only at the new time."""
    watch.put(a=schedule("at(2026-11-30T20:00:00)"))
    watch.put(a=schedule("at(2026-12-01T00:00:00)"))
    watch.pass_time(hours=9)
    assert watch.world.calls == []
    watch.pass_time(hours=3)
    assert len(watch.world.calls) == 1


def test_disabled_schedule_is_silent(watch: Watch) -> None:
    """State DISABLED keeps the schedule and calls nothing."""
    watch.put(a=schedule("at(2026-11-30T20:00:00)", State="DISABLED"))
    watch.pass_time(days=2)
    assert watch.world.calls == []


def test_refused_call_is_tried_again(watch: Watch) -> None:
    """A rejected deletion of an endpoint that is being updated is retried later."""
    watch.world.refusals = 2
    watch.put(a=schedule("at(2026-11-30T20:00:00)"))
    watch.pass_time(hours=9)
    assert len(watch.world.calls) == 1
    watch.pass_time(minutes=10)
    watch.pass_time(minutes=10)
    watch.pass_time(days=1)
    assert [name for name, _ in watch.world.calls] == ["delete_endpoint"] * 3


def test_refused_call_is_given_up_by_its_policy(watch: Watch) -> None:
    """MaximumRetryAttempts 1 gives two attempts, which the metrics of the group count."""
    watch.world.refusals = 9
    target = {**schedule("")["Target"], "RetryPolicy": {"MaximumRetryAttempts": 1, "MaximumEventAgeInSeconds": 86400}}
    watch.put(a=schedule("at(2026-11-30T20:00:00)", Target=target))
    for _ in range(4):
        watch.pass_time(hours=9)
    assert len(watch.world.calls) == 2
    assert watch.world.failures == [("TargetErrorCount", "g")] * 2 + [("InvocationDroppedCount", "g")]


def test_rate_goes_on_until_its_end(watch: Watch) -> None:
    """A rate begins at once, comes after each interval, and not after EndDate."""
    watch.put(a=schedule("rate(1 hour)", EndDate=START + timedelta(hours=2)))
    counts = []
    for _ in range(4):
        counts.append(len(watch.world.calls))
        watch.pass_time(hours=1)
    assert counts == [1, 2, 3, 3]


def test_other_targets_are_a_topic_and_the_api_of_scaling(watch: Watch) -> None:
    """A topic's ARN is published to; the service name of a universal target lacks boto3's hyphen."""
    scaling = {
        "Arn": "arn:aws:scheduler:::aws-sdk:applicationautoscaling:registerScalableTarget",
        "RoleArn": ROLE,
        "Input": '{"MinCapacity": 0, "MaxCapacity": 0}',
    }
    watch.put(
        a=schedule("at(2026-11-30T20:00:00)", Target={"Arn": TOPIC, "Input": "the end", "RoleArn": ROLE}),
        b=schedule("at(2026-11-30T20:01:00)", Target=scaling),
    )
    watch.pass_time(hours=9)
    assert watch.world.calls == [
        ("publish", {"TopicArn": TOPIC, "Message": "the end"}),
        ("register_scalable_target", {"MinCapacity": 0, "MaxCapacity": 0}),
    ]


def test_expression_that_nobody_can_read_stops_no_other(watch: Watch) -> None:
    """An expression that the runner cannot read is skipped, and the other schedules run."""
    watch.put(a=schedule("in(5 minutes)"), b=schedule("at(2026-11-30T20:00:00)"))
    watch.pass_time(hours=9)
    assert len(watch.world.calls) == 1


@pytest.mark.parametrize("action", ["conquerEndpoint", "meta"])
def test_action_that_the_service_lacks_stops_no_other(watch: Watch, action: str) -> None:
    """A misspelt action fails at its time, and other schedules run."""
    misspelt = {"Arn": f"arn:aws:scheduler:::aws-sdk:sagemaker:{action}", "Input": "{}", "RoleArn": ROLE}
    watch.put(
        a=schedule("at(2026-11-30T20:00:00)", Target=misspelt, ActionAfterCompletion="DELETE"),
        b=schedule("at(2026-11-30T20:01:00)"),
    )
    watch.pass_time(hours=9)
    assert watch.world.calls == [("delete_endpoint", {"EndpointName": "e"})]
    assert list(watch.world.schedules) == ["b"]


def test_call_that_fails_in_an_unforeseen_way_stops_no_other(watch: Watch) -> None:
    """A call that raises an unexpected exception is given up, and later calls are made."""
    watch.world.broken = "publish"
    watch.put(
        a=schedule("at(2026-11-30T20:00:00)", Target={"Arn": TOPIC, "RoleArn": ROLE}),
        b=schedule("at(2026-11-30T20:01:00)"),
    )
    watch.pass_time(hours=9)
    assert [name for name, _ in watch.world.calls] == ["publish", "delete_endpoint"]


def test_fault_of_one_look_does_not_end_the_watch(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    """An exception while schedules are read or called is logged, and later schedules run."""
    watch.world.faults = 1
    watch.runner.start()
    try:
        watch.runner.reload("us-east-1")
        wait_for(lambda: not watch.world.faults)
        watch.world.schedules["a"] = schedule("rate(1 hour)")
        watch.runner.reload("us-east-1")
        wait_for(lambda: watch.world.calls)
    finally:
        watch.runner.stop()
    assert "no such page" in caplog.text


@pytest.mark.parametrize(
    ("target", "about"),
    [
        ({"Arn": "arn:aws:lambda:us-east-1:123456789012:function:f"}, "arn:aws:lambda"),
        ({"Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:describeEndpoint"}, "describeEndpoint"),
        ({"Arn": DELETE, "Input": "now"}, "Target.Input"),
        ({"Arn": DELETE, "Input": "[]"}, "Target.Input"),
    ],
)
def test_target_that_cannot_be_called_is_refused_beforehand(target: dict[str, Any], about: str) -> None:
    """A target that Scheduler rejects, or the emulator cannot call, fails at the deploy and not when it is due."""
    with faulted("ValidationException", 400, about):
        check_target(target)
