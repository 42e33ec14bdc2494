"""Monitoring and expiry in the emulator: the resources deploy, and alarms and schedules act."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from fakes.assembly import publish
from typer.testing import CliRunner

from cohost import cli
from cohost.catalog.models import Catalog
from local_aws.testing.running import FrontDoor, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCOUNT = "123456789012"


@pytest.fixture
def door(tmp_path: Any) -> Iterator[FrontDoor]:
    """Start a front door for each test."""
    with running(tmp_path) as front_door:
        yield front_door


def outputs_of(stack: dict[str, Any]) -> dict[str, str]:
    """A stack's outputs by name."""
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
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "AssumeRolePolicyDocument": {
                    "Statement": {
                        "Effect": "Allow",
                        "Principal": {"Service": "scheduler.amazonaws.com"},
                        "Action": "sts:AssumeRole",
                    }
                },
                "Policies": [
                    {
                        "PolicyName": "publish",
                        "PolicyDocument": {
                            "Version": "2012-10-17",
                            "Statement": {"Effect": "Allow", "Action": "sns:Publish", "Resource": {"Ref": "Topic"}},
                        },
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
                    "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
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
    """Return the expression of a one-time schedule."""
    return f"at({moment:%Y-%m-%dT%H:%M:%S})"


def test_resources_of_monitoring_are_made_changed_and_removed(door: FrontDoor) -> None:
    """Each resource type of monitoring is created as the template says, updated in place, and deleted."""
    cloudformation, later = door.client("cloudformation"), datetime.now(UTC) + timedelta(days=30)
    cloudformation.create_stack(StackName="s", TemplateBody=template(when=at(later)), Capabilities=CAPABILITIES)
    first = outputs_of(door.settle("CREATE_COMPLETE"))
    sns, budgets = door.client("sns"), door.client("budgets")
    attributes = sns.get_topic_attributes(TopicArn=first["Topic"])["Attributes"]
    assert attributes["DisplayName"] == "hello"
    assert "cloudwatch.amazonaws.com" in attributes["Policy"]
    (mail,) = sns.list_subscriptions_by_topic(TopicArn=first["Topic"])["Subscriptions"]
    assert (mail["Protocol"], mail["Endpoint"]) == ("email", "team@example.com")

    later += timedelta(days=1)
    cloudformation.update_stack(
        StackName="s", TemplateBody=template(when=at(later), budget=200, wording="bye"), Capabilities=CAPABILITIES
    )
    assert outputs_of(door.settle("UPDATE_COMPLETE")) == first
    dashboard = door.client("cloudwatch").get_dashboard(DashboardName=first["Dashboard"])
    # `Ref` of a budget is its Id, which AWS Budgets does not take.
    (budget,) = budgets.describe_budgets(AccountId=ACCOUNT)["Budgets"]
    assert budget["BudgetName"] != first["Budget"]
    schedule = door.client("scheduler").get_schedule(GroupName=first["Group"], Name=first["Schedule"])
    assert "bye" in dashboard["DashboardBody"]
    assert float(budget["BudgetLimit"]["Amount"]) == 200
    assert schedule["ScheduleExpression"] == at(later)
    assert schedule["Target"]["Input"] == "bye"

    door.delete_stack()
    assert sns.list_topics().get("Topics", []) == []
    assert door.client("cloudwatch").list_dashboards()["DashboardEntries"] == []
    assert budgets.describe_budgets(AccountId=ACCOUNT).get("Budgets", []) == []
    assert [group["Name"] for group in door.client("scheduler").list_schedule_groups()["ScheduleGroups"]] == ["default"]


def filtered(pattern: str, value: str = "$calls") -> str:
    """The template of a log group with a metric filter."""
    transformation = {
        "MetricName": "Calls",
        "MetricNamespace": "LmiCohost/e",
        "MetricValue": value,
        "Unit": "Count",
        "Dimensions": [{"Key": "Model", "Value": "$model"}],
    }
    own = {
        "LogGroupName": {"Ref": "Logs"},
        "FilterPattern": pattern,
        "MetricTransformations": [transformation],
    }
    return json.dumps(
        {
            "Resources": {
                "Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "/own"}},
                "Filter": {"Type": "AWS::Logs::MetricFilter", "Properties": own},
            }
        }
    )


def test_a_metric_filter_is_made_changed_and_removed(door: FrontDoor) -> None:
    """The log group has it as the template says, and loses it with the stack."""
    cloudformation, logs = door.client("cloudformation"), door.client("logs")
    cloudformation.create_stack(StackName="s", TemplateBody=filtered('[..., mark = "m", model, calls]'))
    door.settle("CREATE_COMPLETE")
    (made,) = logs.describe_metric_filters(logGroupName="/own")["metricFilters"]
    (transformation,) = made["metricTransformations"]
    assert made["filterPattern"] == '[..., mark = "m", model, calls]'
    assert transformation["dimensions"] == {"Model": "$model"}

    cloudformation.update_stack(StackName="s", TemplateBody=filtered('[..., mark = "m", model, calls]', value="1"))
    door.settle("UPDATE_COMPLETE")
    (changed,) = logs.describe_metric_filters(logGroupName="/own")["metricFilters"]
    assert changed["metricTransformations"][0]["metricValue"] == "1"
    assert changed["filterName"] == made["filterName"]

    door.delete_stack()
    assert logs.describe_metric_filters()["metricFilters"] == []


def test_a_metric_filter_that_would_not_be_evaluated_fails_the_deploy(door: FrontDoor) -> None:
    """No metric would ever come, and no word would say so."""
    client = door.client("cloudformation")
    client.create_stack(StackName="s", TemplateBody=filtered("{ $.model = * }"))
    door.settle("ROLLBACK_COMPLETE")
    events = client.describe_stack_events(StackName="s")["StackEvents"]
    assert any("the only kind that this emulation evaluates" in one.get("ResourceStatusReason", "") for one in events)


def test_schedule_publishes_to_its_topic(door: FrontDoor) -> None:
    """A stack's schedule publishes to a queue on its topic; a rate starts at once."""
    sqs = door.client("sqs")
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    body = template(when="rate(1 day)", to=("sqs", f"arn:aws:sqs:us-east-1:{ACCOUNT}:q"))
    door.client("cloudformation").create_stack(StackName="s", TemplateBody=body, Capabilities=CAPABILITIES)
    door.settle("CREATE_COMPLETE")
    got: list[str] = []

    def received() -> bool:
        got.extend(json.loads(one["Body"])["Message"] for one in sqs.receive_message(QueueUrl=url).get("Messages", []))
        return bool(got)

    wait_for(received)
    assert got == ["hello"]


def test_schedule_with_a_target_that_nobody_can_call_fails_the_deploy(door: FrontDoor) -> None:
    """A schedule with an impossible target fails the deploy with the reason in the events."""
    wrong = resources(when="rate(1 day)")
    wrong["Schedule"]["Properties"]["Target"]["Arn"] = "arn:aws:scheduler:::aws-sdk:sagemaker:describeEndpoint"
    client = door.client("cloudformation")
    client.create_stack(StackName="s", TemplateBody=json.dumps({"Resources": wrong}), Capabilities=CAPABILITIES)
    door.settle("ROLLBACK_COMPLETE")
    events = client.describe_stack_events(StackName="s")["StackEvents"]
    assert any("an action that only reads" in event.get("ResourceStatusReason", "") for event in events)


STACK = "LmiCohostStack"
CAPABILITIES = ["CAPABILITY_NAMED_IAM"]
# Eight hours in eight seconds.
FAST = 3600


def catalog(**settings: Any) -> Catalog:
    """Return a catalog of one model."""
    endpoint = {"name": "lmi", "instance_type": "ml.g5.xlarge", "image": "djl-inference:0.36.0-lmi26.0.0-cu130"}
    model = {"model_id": "org/name", "task": "text-classification"}
    return Catalog.model_validate({"endpoint": endpoint, "models": {"nli": model}, **settings})


class Mailbox:
    """A queue that is subscribed to a topic."""

    def __init__(self, door: FrontDoor, topic: str) -> None:
        self._sqs = door.client("sqs")
        self._url = self._sqs.create_queue(QueueName="mail")["QueueUrl"]
        self.messages: list[str] = []
        door.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=f"arn:aws:sqs:us-east-1:{ACCOUNT}:mail")

    def holds(self, text: str) -> bool:
        """Return True if a message with this text has come."""
        for one in self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages", []):
            self.messages.append(json.loads(one["Body"])["Message"])
            self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=one["ReceiptHandle"])
        return any(text in message for message in self.messages)


def deployed(door: FrontDoor, folder: Path, **settings: Any) -> dict[str, str]:
    """Deploy the default stack of a catalog, and return its outputs."""
    arguments = publish(door, catalog(**settings), folder)
    door.client("cloudformation").create_stack(**arguments, Capabilities=CAPABILITIES)
    return outputs_of(door.settle("CREATE_COMPLETE", STACK))


def expire(*arguments: str) -> dict[str, Any]:
    """Run `cohost expire` in this process."""
    result = CliRunner().invoke(cli.app, ["expire", *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


@pytest.fixture
def caller(door: FrontDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return the environment of a user of the front door."""
    monkeypatch.setattr("cohost.deploy.expiry.POLL_SECONDS", 0.05)
    for name, value in door.environment().items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("caller")
def test_end_deletes_the_endpoint_alone_and_the_command_brings_it_back(door: FrontDoor, tmp_path: Path) -> None:
    """The expiry deletes only the endpoint and sends a notice; `cohost expire` restores the endpoint."""
    outputs = deployed(door, tmp_path / "one", expires="8h")
    mail, fake = Mailbox(door, outputs["AlarmTopicArn"]), door.sagemaker
    first = expire()
    in_eight_hours = datetime.now(UTC) + timedelta(hours=8)
    assert abs(datetime.fromisoformat(first["at"]) - in_eight_hours) < timedelta(minutes=10)
    assert (first["state"], first["action"]) == ("InService", "delete-endpoint")

    later = expire("+4h")
    assert datetime.fromisoformat(later["at"]) - datetime.fromisoformat(first["at"]) == timedelta(hours=4)
    assert expire("never")["at"] is None
    assert expire("8h")["at"] is not None

    configs, models, (bucket,) = dict(fake.configs), dict(fake.models), _buckets(door)
    door.set_speed(FAST)
    wait_for(lambda: fake.endpoints == {})
    door.set_speed(1)
    wait_for(
        lambda: mail.holds(
            "Endpoint lmi of stack LmiCohostStack has reached its end (expires: 8h) and is being deleted"
        )
    )
    assert (fake.configs, fake.models) == (configs, models)
    assert _keys(door, bucket) != []
    assert expire()["state"] == "Gone"

    # As docs/monitoring.md has it: a deploy that changes the endpoint comes too early, until the command was run.
    other = {"nli": {"model_id": "org/other", "task": "text-classification"}}
    changed = publish(door, catalog(expires="8h", models=other), tmp_path / "two")
    assert "Endpoint lmi was deleted" in _updated(door, changed, "UPDATE_ROLLBACK_FAILED")
    # The clock is hours ahead of the caller's, or days on a slow machine, so that eight hours might be over already.
    back = expire("60d")
    assert (back["state"], list(fake.endpoints)) == ("InService", ["lmi"])
    door.client("cloudformation").continue_update_rollback(StackName=STACK)
    door.settle("UPDATE_ROLLBACK_COMPLETE", STACK)
    _updated(door, changed, "UPDATE_COMPLETE")
    assert list(fake.endpoints) == ["lmi"]
    assert expire()["at"] == back["at"]


@pytest.mark.usefixtures("caller")
def test_end_that_is_refused_is_told(door: FrontDoor, tmp_path: Path) -> None:
    """If SageMaker rejects the deletion of an expired endpoint, the alarm topic gets a message."""
    outputs = deployed(door, tmp_path / "one", expires="8h")
    mail = Mailbox(door, outputs["AlarmTopicArn"])
    # Of an endpoint that was deleted SageMaker refuses the deletion, as of one that is being updated.
    door.client("sagemaker").delete_endpoint(EndpointName="lmi")
    wait_for(lambda: door.sagemaker.endpoints == {})
    door.set_speed(FAST)
    wait_for(lambda: mail.holds("a call at its end (expires) failed"))


def test_alarm_of_the_stack_reaches_whoever_subscribed(door: FrontDoor, tmp_path: Path) -> None:
    """Failing calls set off the deployed alarm, whose message reaches the topic's subscribers."""
    outputs = deployed(door, tmp_path / "one", monitoring={})
    mail = Mailbox(door, outputs["AlarmTopicArn"])
    dimensions = [{"Name": "EndpointName", "Value": "lmi"}, {"Name": "VariantName", "Value": "AllTraffic"}]
    datum = {"MetricName": "InvocationModelErrors", "Dimensions": dimensions, "Value": 1.0, "Unit": "Count"}
    # A minute of the alarm is a second.
    door.set_speed(60)

    def told() -> bool:
        door.client("cloudwatch").put_metric_data(Namespace="AWS/SageMaker", MetricData=[datum])
        return mail.holds("monitoring.alarms.model_errors_percent")

    wait_for(told)
    message = json.loads(next(one for one in mail.messages if "model_errors_percent" in one))
    assert message["NewStateValue"] == "ALARM"
    assert message["AlarmDescription"].startswith("Endpoint lmi: the container refuses or fails more than 5 %")
    assert outputs["DashboardUrl"].startswith("https://us-east-1.console.aws.amazon.com/cloudwatch/home")


def _updated(door: FrontDoor, arguments: dict[str, str], status: str) -> str:
    """Update the stack to a status that starts with this text, and return the reasons of failures."""
    client = door.client("cloudformation")
    client.update_stack(**arguments, Capabilities=CAPABILITIES)

    def now() -> str:
        found: str = client.describe_stacks(StackName=STACK)["Stacks"][0]["StackStatus"]
        return found

    wait_for(lambda: not now().endswith("IN_PROGRESS"))
    assert now().startswith(status)
    events = client.describe_stack_events(StackName=STACK)["StackEvents"]
    return " ".join(event.get("ResourceStatusReason", "") for event in events)


def _buckets(door: FrontDoor) -> list[str]:
    """The stack's own buckets."""
    names = [one["Name"] for one in door.client("s3").list_buckets()["Buckets"]]
    return [name for name in names if not name.startswith("cdk-")]


def _keys(door: FrontDoor, bucket: str) -> list[str]:
    return [one["Key"] for one in door.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])]
