"""Monitoring and end of life on the AWS for one machine: the resources deploy, and what they promise happens."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cloud_fixtures.running import FrontDoor, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ACCOUNT = "123456789012"


@pytest.fixture
def door(tmp_path: Any) -> Iterator[FrontDoor]:
    """A front door of its own for each test."""
    with running(tmp_path) as front_door:
        yield front_door


def until(condition: Callable[[], bool], limit_s: float = 60) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def settle(door: FrontDoor, status: str) -> dict[str, str]:
    """Wait for the stack `s` to end its operation in a status; its outputs."""
    client = door.client("cloudformation")

    def now() -> dict[str, Any]:
        stack: dict[str, Any] = client.describe_stacks(StackName="s")["Stacks"][0]
        return stack

    until(lambda: not now()["StackStatus"].endswith("IN_PROGRESS"))
    stack = now()
    events = client.describe_stack_events(StackName="s")["StackEvents"] if stack["StackStatus"] != status else []
    assert stack["StackStatus"] == status, [event.get("ResourceStatusReason") for event in events]
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


def resources(
    *, when: str, budget: int = 100, wording: str = "hello", to: tuple[str, str] = ("email", "team@example.com")
) -> dict[str, Any]:
    """A topic with a policy and a subscriber, a dashboard, a budget, and a schedule that publishes at a time."""
    policy = {
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "cloudwatch.amazonaws.com"}, "Action": "sns:Publish",
             "Resource": {"Ref": "Topic"}}
        ]
    }  # fmt: skip
    body = {"widgets": [{"type": "text", "properties": {"markdown": wording}}]}
    return {
        "Topic": {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": wording}},
        "Policy": {
            "Type": "AWS::SNS::TopicPolicy",
            "Properties": {"PolicyDocument": policy, "Topics": [{"Ref": "Topic"}]},
        },
        "Subscriber": {
            "Type": "AWS::SNS::Subscription",
            "Properties": {"TopicArn": {"Ref": "Topic"}, "Protocol": to[0], "Endpoint": to[1]},
        },
        "Dashboard": {"Type": "AWS::CloudWatch::Dashboard", "Properties": {"DashboardBody": json.dumps(body)}},
        "Budget": {
            "Type": "AWS::Budgets::Budget",
            "Properties": {
                "Budget": {
                    "BudgetType": "COST",
                    "TimeUnit": "MONTHLY",
                    "BudgetLimit": {"Amount": budget, "Unit": "USD"},
                },
                "NotificationsWithSubscribers": [
                    {
                        "Notification": {
                            "NotificationType": "ACTUAL",
                            "ComparisonOperator": "GREATER_THAN",
                            "Threshold": 80,
                        },
                        "Subscribers": [{"SubscriptionType": "EMAIL", "Address": "team@example.com"}],
                    }
                ],
            },
        },
        "Group": {"Type": "AWS::Scheduler::ScheduleGroup", "Properties": {}},
        "Schedule": {
            "Type": "AWS::Scheduler::Schedule",
            "DependsOn": "Subscriber",
            "Properties": {
                "GroupName": {"Ref": "Group"},
                "ScheduleExpression": when,
                "FlexibleTimeWindow": {"Mode": "OFF"},
                "Target": {
                    "Arn": {"Ref": "Topic"},
                    "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/r",
                    "Input": wording,
                },
            },
        },
    }


def template(**changes: Any) -> str:
    """The template of `resources`, with outputs."""
    outputs = {name: {"Value": {"Ref": name}} for name in ("Topic", "Dashboard", "Budget", "Group", "Schedule")}
    return json.dumps({"Resources": resources(**changes), "Outputs": outputs})


def at(moment: datetime) -> str:
    """The expression of a one-time schedule."""
    return f"at({moment:%Y-%m-%dT%H:%M:%S})"


def test_resources_of_monitoring_are_made_changed_and_removed(door: FrontDoor) -> None:
    """Each type exists after the deploy with what the template says, changes in place, and is gone in the end."""
    cloudformation, later = door.client("cloudformation"), datetime.now(UTC) + timedelta(days=30)
    cloudformation.create_stack(StackName="s", TemplateBody=template(when=at(later)))
    first = settle(door, "CREATE_COMPLETE")
    sns, budgets = door.client("sns"), door.client("budgets")
    attributes = sns.get_topic_attributes(TopicArn=first["Topic"])["Attributes"]
    assert attributes["DisplayName"] == "hello"
    assert "cloudwatch.amazonaws.com" in attributes["Policy"]
    (mail,) = sns.list_subscriptions_by_topic(TopicArn=first["Topic"])["Subscriptions"]
    assert (mail["Protocol"], mail["Endpoint"]) == ("email", "team@example.com")

    later += timedelta(days=1)
    cloudformation.update_stack(StackName="s", TemplateBody=template(when=at(later), budget=200, wording="bye"))
    assert settle(door, "UPDATE_COMPLETE") == first
    dashboard = door.client("cloudwatch").get_dashboard(DashboardName=first["Dashboard"])
    budget = budgets.describe_budget(AccountId=ACCOUNT, BudgetName=first["Budget"])["Budget"]
    schedule = door.client("scheduler").get_schedule(GroupName=first["Group"], Name=first["Schedule"])
    assert "bye" in dashboard["DashboardBody"]
    assert float(budget["BudgetLimit"]["Amount"]) == 200
    assert schedule["ScheduleExpression"] == at(later)
    assert schedule["Target"]["Input"] == "bye"

    cloudformation.delete_stack(StackName="s")
    until(lambda: sns.list_topics().get("Topics", []) == [])
    cloudformation.get_waiter("stack_delete_complete").wait(StackName="s", WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    assert door.client("cloudwatch").list_dashboards()["DashboardEntries"] == []
    assert budgets.describe_budgets(AccountId=ACCOUNT).get("Budgets", []) == []
    assert [group["Name"] for group in door.client("scheduler").list_schedule_groups()["ScheduleGroups"]] == ["default"]


def test_schedule_publishes_to_its_topic(door: FrontDoor) -> None:
    """A schedule of a stack reaches a queue on its topic; a rate begins as soon as it is made."""
    sqs = door.client("sqs")
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    body = template(when="rate(1 day)", to=("sqs", f"arn:aws:sqs:us-east-1:{ACCOUNT}:q"))
    door.client("cloudformation").create_stack(StackName="s", TemplateBody=body)
    settle(door, "CREATE_COMPLETE")
    got: list[str] = []

    def received() -> bool:
        got.extend(json.loads(one["Body"])["Message"] for one in sqs.receive_message(QueueUrl=url).get("Messages", []))
        return bool(got)

    until(received)
    assert got == ["hello"]


def test_schedule_with_a_target_that_nobody_can_call_fails_the_deploy(door: FrontDoor) -> None:
    """The reason stands in the stack's events, not in a log at night."""
    wrong = resources(when="rate(1 day)")
    wrong["Schedule"]["Properties"]["Target"]["Arn"] = "arn:aws:scheduler:::aws-sdk:sagemaker:describeEndpoint"
    client = door.client("cloudformation")
    client.create_stack(StackName="s", TemplateBody=json.dumps({"Resources": wrong}))
    settle(door, "ROLLBACK_COMPLETE")
    events = client.describe_stack_events(StackName="s")["StackEvents"]
    assert any("an action that only reads is no target" in event.get("ResourceStatusReason", "") for event in events)
