"""Schedules that boto3 creates and updates at the front door: invalid ones are rejected and not stored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted

from local_aws.testing import serving_role
from local_aws.testing.running import FrontDoor, running

if TYPE_CHECKING:
    from collections.abc import Iterator

ROLE = "arn:aws:iam::123456789012:role/r"
TOPIC = {"Arn": "arn:aws:sns:us-east-1:123456789012:t", "RoleArn": ROLE}
DELETE = {"Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint", "RoleArn": ROLE}
GOOD: dict[str, Any] = {
    "ScheduleExpression": "at(2030-01-01T00:00:00)",
    "FlexibleTimeWindow": {"Mode": "OFF"},
    "Target": TOPIC,
}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"ScheduleExpression": "every day"}, "every day"),
    ({"ScheduleExpression": "cron(0 8 * *)"}, "cron"),
    ({"ScheduleExpressionTimezone": "Mars/Base"}, "Mars/Base"),
    ({"Target": {"Arn": "arn:aws:lambda:us-east-1:123456789012:function:f", "RoleArn": ROLE}}, "Target.Arn"),
    ({"Target": {**DELETE, "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:describeEndpoint"}}, "only reads"),
    ({"Target": {**DELETE, "Input": "now"}}, "Target.Input"),
]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontDoor]:
    """Start one front door for the tests of this file."""
    with running(tmp_path_factory.mktemp("state")) as front_door:
        serving_role(front_door.client("iam"), "r", "scheduler.amazonaws.com")
        yield front_door


@pytest.fixture
def scheduler(door: FrontDoor) -> Iterator[Any]:
    """The client of a Scheduler without schedules."""
    client = door.client("scheduler")
    yield client
    for schedule in client.list_schedules()["Schedules"]:
        client.delete_schedule(Name=schedule["Name"])


@pytest.mark.parametrize(("change", "text"), BAD)
def test_bad_schedule_is_not_created(scheduler: Any, change: dict[str, Any], text: str) -> None:
    """An invalid schedule gets Scheduler's ValidationException with the field, and is not stored."""
    with faulted("ValidationException", 400, text):
        scheduler.create_schedule(Name="s", **{**GOOD, **change})
    assert scheduler.list_schedules()["Schedules"] == []


@pytest.mark.parametrize(("change", "text"), BAD)
def test_bad_update_leaves_the_schedule_as_it_was(scheduler: Any, change: dict[str, Any], text: str) -> None:
    """UpdateSchedule is checked like CreateSchedule."""
    scheduler.create_schedule(Name="s", **GOOD)
    with faulted("ValidationException", 400, text):
        scheduler.update_schedule(Name="s", **{**GOOD, **change})
    kept = scheduler.get_schedule(Name="s")
    assert (kept["ScheduleExpression"], kept["Target"]["Arn"]) == (GOOD["ScheduleExpression"], TOPIC["Arn"])


def test_good_schedule_is_created_and_updated(scheduler: Any) -> None:
    """Valid schedules with every emulated kind of target are created and updated."""
    scheduler.create_schedule_group(Name="g")
    scheduler.create_schedule(Name="s", **GOOD)
    changed = {"ScheduleExpression": "cron(0 8 ? * MON-FRI *)", "ScheduleExpressionTimezone": "Europe/Berlin"}
    scheduler.update_schedule(Name="s", **{**GOOD, **changed, "Target": {**DELETE, "Input": '{"EndpointName": "e"}'}})
    assert scheduler.get_schedule(Name="s")["ScheduleExpressionTimezone"] == "Europe/Berlin"


def test_stack_reports_what_the_service_rejects(door: FrontDoor) -> None:
    """A stack with an invalid schedule fails with Scheduler's message as the resource's reason."""
    schedule = {"Type": "AWS::Scheduler::Schedule", "Properties": {**GOOD, "ScheduleExpression": "every day"}}
    cloudformation = door.client("cloudformation")
    cloudformation.create_stack(StackName="s", TemplateBody=json.dumps({"Resources": {"Night": schedule}}))
    door.settle("ROLLBACK_COMPLETE")
    events = cloudformation.describe_stack_events(StackName="s")["StackEvents"]
    (reason,) = [event["ResourceStatusReason"] for event in events if event["ResourceStatus"] == "CREATE_FAILED"]
    assert "every day" in reason
    assert "AWS::Scheduler::Schedule, Status Code: 400" in reason
    door.delete_stack()


def test_deleted_schedule_is_not_found(scheduler: Any) -> None:
    """An update of a missing schedule gets ResourceNotFoundException."""
    with faulted("ResourceNotFoundException"):
        scheduler.update_schedule(Name="nobody", **GOOD)
