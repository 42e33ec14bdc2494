"""`cohost cleanup` against the emulator, from states that deploys and deletions left."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from cohost import cli
from cohost.deploy.cleanup.resource_types import BUDGET, ENDPOINT, KINDS, Polling
from cohost.deploy.cleanup.work import clean_up, take_inventory
from cohost.endpoint.stack_outputs import STACK_TAG, budget_name
from local_aws.demo.script import find_leftovers
from local_aws.sagemaker.routes import SageMaker
from local_aws.sagemaker.settings import Settings as SageMakerSettings
from local_aws.testing import SERVING_POLICY
from local_aws.testing.fake_container import FakeFactory
from local_aws.testing.running import running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"
# SageMaker's ARNs have names in lower case, log groups as they were written.
LOG_GROUP = "/aws/sagemaker/Endpoints/E"
PATIENCE = Polling(poll_s=0.05, limit_s=60)


class Session(boto3.Session):
    """A session that caches its clients, because creating clients is slow and the clean-up creates many."""

    def __init__(self) -> None:
        super().__init__()
        self.client = functools.cache(super().client)  # type: ignore[method-assign]


class World:
    """An emulator with fake containers, and functions that prepare the state before the clean-up."""

    def __init__(self) -> None:
        self.session = Session()
        self.stack = ""
        self._count = 0

    def next_stack(self) -> None:
        """Return a stack name that was not used before, because CloudFormation remembers deleted stacks."""
        self._count += 1
        self.stack = f"s{self._count}"

    def clear(self) -> None:
        """Delete all resources that a test left."""
        cloudformation = self.session.client("cloudformation")
        if not self.status().startswith("DELETE"):
            cloudformation.update_termination_protection(StackName=self.stack, EnableTerminationProtection=False)
            self.delete_by_hand()
        clean_up(self.session, self.stack, PATIENCE, everything=True)
        sagemaker = self.session.client("sagemaker")
        for endpoint in sagemaker.list_endpoints()["Endpoints"]:
            sagemaker.delete_endpoint(EndpointName=endpoint["EndpointName"])
        wait_for(lambda: not sagemaker.list_endpoints()["Endpoints"])
        logs = self.session.client("logs")
        for group in logs.describe_log_groups()["logGroups"]:
            logs.delete_log_group(logGroupName=group["logGroupName"])

    def create(self, *, keep: bool = False, broken: bool = False, wait: bool = True, protected: bool = False) -> None:
        """Deploy the stack; with `broken`, its last resource after the endpoint fails."""
        self.session.client("cloudformation").create_stack(
            StackName=self.stack,
            TemplateBody=template(keep=keep, broken=broken),
            Capabilities=["CAPABILITY_IAM"],
            EnableTerminationProtection=protected,
        )
        if wait:
            self.settle()

    def settle(self) -> str:
        """Wait until no operation of the stack runs, and return its status."""
        wait_for(lambda: not self.status().endswith("IN_PROGRESS"))
        return self.status()

    def status(self) -> str:
        """The status of the newest stack, deleted or not."""
        return str(self.session.client("cloudformation").list_stacks()["StackSummaries"][0]["StackStatus"])

    def bucket(self) -> str:
        """Return the name of the only bucket."""
        return str(self.session.client("s3").list_buckets()["Buckets"][0]["Name"])

    def delete_by_hand(self) -> None:
        """Delete the stack as `cdk destroy` does."""
        self.session.client("cloudformation").delete_stack(StackName=self.stack)
        self.settle()


def template(*, keep: bool, broken: bool) -> str:
    """Return a stack like the project's: a bucket, a role, and an endpoint."""
    trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    role = {"Fn::GetAtt": ["Role", "Arn"]}
    data = {"Fn::Sub": "s3://${Bucket}/models/"}
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": {"Fn::GetAtt": ["Model", "ModelName"]},
        "InstanceType": "ml.g5.xlarge",
        "InitialInstanceCount": 1,
    }
    container = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": data}
    resources: dict[str, Any] = {
        "Bucket": {"Type": "AWS::S3::Bucket", **({"DeletionPolicy": "Retain"} if keep else {})},
        "Role": of(
            "IAM::Role",
            AssumeRolePolicyDocument={"Version": "2012-10-17", "Statement": [trust]},
            Policies=[SERVING_POLICY],
        ),
        "Logs": of("Logs::LogGroup", LogGroupName=LOG_GROUP),
        "Model": of("SageMaker::Model", PrimaryContainer=container, ExecutionRoleArn=role),
        "Config": of("SageMaker::EndpointConfig", ProductionVariants=[variant]),
        "Endpoint": of(
            "SageMaker::Endpoint",
            EndpointName="E",
            EndpointConfigName={"Fn::GetAtt": ["Config", "EndpointConfigName"]},
            Tags=[{"Key": STACK_TAG, "Value": {"Ref": "AWS::StackName"}}],
        ),
    }
    # As in our stacks: the group goes after the endpoint, whose containers write to it to the last.
    resources["Endpoint"]["DependsOn"] = "Logs"
    if broken:
        resources["Late"] = of("SageMaker::EndpointConfig", ProductionVariants=[{**variant, "ModelName": "nobody"}])
        resources["Late"]["DependsOn"] = "Endpoint"
    return json.dumps({"Description": "lmi-cohost: a test", "Resources": resources})


def of(kind: str, **properties: Any) -> dict[str, Any]:
    """A resource of a template."""
    return {"Type": f"AWS::{kind}", "Properties": properties}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Start one emulator for this file, which boto3 and the command find by environment variables."""
    limits = SageMakerSettings(publish_interval_s=0.2, transition_delay_s=0.3)
    make = functools.partial(SageMaker, settings=limits, start_container=FakeFactory())
    with running(tmp_path_factory.mktemp("state"), make) as door, pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)
        for name, value in door.environment().items():
            patch.setenv(name, value)
        yield World()


@pytest.fixture
def world(aws: World) -> Iterator[World]:
    """Return the emulator for one test, which leaves it empty; stacks get unique names."""
    aws.next_stack()
    yield aws
    aws.clear()
    assert find_leftovers(aws.session) == {}


def nothing_is_left(world: World, *, everything: bool = False) -> None:
    """Clean up twice; the second time has nothing to do, and no service knows anything."""
    first = clean_up(world.session, world.stack, PATIENCE, everything=everything)
    assert (first.faults, first.after.stacks, first.after.resources) == ((), (), ())
    second = clean_up(world.session, world.stack, PATIENCE, everything=everything)
    assert (second.removed, second.faults) == ((), ())
    assert find_leftovers(world.session) == {}


def test_a_whole_stack_goes(world: World) -> None:
    """`cohost cleanup` removes a complete stack."""
    world.create()
    nothing_is_left(world)


def test_a_stack_that_is_being_made_is_waited_for(world: World) -> None:
    """`cohost cleanup` waits until an endpoint in Creating can be deleted."""
    world.create(wait=False)
    wait_for(lambda: world.session.client("sagemaker").list_endpoints()["Endpoints"])
    nothing_is_left(world)


def test_a_stack_that_rolled_back_goes(world: World) -> None:
    """`cohost cleanup` removes the stack of a failed first deploy."""
    world.create(broken=True)
    assert world.status() == "ROLLBACK_COMPLETE"
    nothing_is_left(world)


def test_an_endpoint_that_is_gone_already_is_no_obstacle(world: World) -> None:
    """`cohost cleanup` works if the endpoint was deleted by hand or has expired."""
    world.create()
    sagemaker = world.session.client("sagemaker")
    sagemaker.delete_endpoint(EndpointName="E")
    wait_for(lambda: not sagemaker.list_endpoints()["Endpoints"])
    nothing_is_left(world)


def test_objects_of_others_keep_the_bucket_unless_all_shall_go(world: World) -> None:
    """`cohost cleanup` without --all keeps a bucket with somebody else's object, and names the object as the reason."""
    world.create()
    bucket = world.bucket()
    world.session.client("s3").put_object(Bucket=bucket, Key="theirs", Body=b"x")
    outcome = clean_up(world.session, world.stack, PATIENCE, everything=False)
    assert [(one.type, one.name) for one in outcome.after.resources] == [("AWS::S3::Bucket", bucket)]
    assert world.session.client("sagemaker").list_endpoints()["Endpoints"] == []
    assert outcome.faults[0].startswith(
        f"bucket {bucket}: is left, because it holds objects that lmi-cohost did not write"
    )
    nothing_is_left(world, everything=True)


def test_an_object_that_nobody_may_delete_is_the_reason_that_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that cannot be deleted is named as the reason why the bucket stays; the rest is deleted."""
    world.create()
    bucket, s3 = world.bucket(), world.session.client("s3")
    s3.put_object(Bucket=bucket, Key="theirs", Body=b"x")
    refused = {"Errors": [{"Key": "theirs", "Code": "AccessDenied", "Message": "held by a lock"}]}
    with monkeypatch.context() as patched:
        patched.setattr(s3, "delete_objects", lambda **_: refused)
        outcome = clean_up(world.session, world.stack, PATIENCE, everything=True)
    assert [(one.type, one.name) for one in outcome.after.resources] == [("AWS::S3::Bucket", bucket)]
    assert outcome.faults[-1].startswith(f"AWS::S3::Bucket {bucket} is left: ")
    assert outcome.faults[-1].endswith("(AccessDenied) when calling the DeleteObjects operation: held by a lock")
    nothing_is_left(world, everything=True)


def test_a_kept_bucket_is_told_and_goes_with_all(world: World) -> None:
    """`on_destroy: keep` keeps the bucket without --all, and the output says that the bucket bills."""
    world.create(keep=True)
    world.session.client("s3").put_object(Bucket=world.bucket(), Key="models/a.tar.gz", Body=b"x")
    world.delete_by_hand()
    outcome = clean_up(world.session, world.stack, PATIENCE, everything=False)
    assert (outcome.removed, outcome.faults) == ((), ())
    (kept,) = outcome.after.kept()
    assert (kept.name, kept.bills) == (world.bucket(), "0.023 USD a GB and month")
    nothing_is_left(world, everything=True)


def test_what_a_stack_forgot_is_found_by_its_tags(world: World) -> None:
    """An endpoint that is no longer in the stack, but has the stack's tag, is found and deleted."""
    world.create()
    sagemaker = world.session.client("sagemaker")
    config = sagemaker.describe_endpoint(EndpointName="E")["EndpointConfigName"]
    for name, stack in (("forgotten", world.stack), ("theirs", "other")):
        tags = [{"Key": STACK_TAG, "Value": stack}]
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=config, Tags=tags)
    wait_for(lambda: not any_under_way(world))
    inventory = take_inventory(world.session, world.stack)
    assert {one.name for one in inventory.resources if one.type == ENDPOINT} == {"E", "forgotten"}
    clean_up(world.session, world.stack, PATIENCE, everything=False)
    assert [one["EndpointName"] for one in sagemaker.list_endpoints()["Endpoints"]] == ["theirs"]


def any_under_way(world: World) -> bool:
    """Return True if an endpoint is being created, updated or deleted."""
    endpoints = world.session.client("sagemaker").list_endpoints()["Endpoints"]
    return any(one["EndpointStatus"].endswith("ing") for one in endpoints)


def test_a_schedule_and_a_budget_are_found_although_their_ids_say_neither_group_nor_name(world: World) -> None:
    """CloudFormation's id of a schedule is its name without its group, that of a budget an Id that Budgets lacks."""
    service = {"Effect": "Allow", "Principal": {"Service": "scheduler.amazonaws.com"}, "Action": "sts:AssumeRole"}
    trust = {"Version": "2012-10-17", "Statement": [service]}
    limit = {"BudgetLimit": {"Amount": 1, "Unit": "USD"}, "BudgetType": "COST", "TimeUnit": "MONTHLY"}
    resources = {
        "Group": of("Scheduler::ScheduleGroup", Name="ends"),
        "Role": of("IAM::Role", AssumeRolePolicyDocument=trust),
        "Schedule": of(
            "Scheduler::Schedule",
            GroupName={"Ref": "Group"},
            FlexibleTimeWindow={"Mode": "OFF"},
            ScheduleExpression="at(2099-01-01T00:00:00)",
            Target={
                "Arn": "arn:aws:scheduler:::aws-sdk:sns:publish",
                "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
                "Input": "{}",
            },
        ),
        "Budget": of("Budgets::Budget", Budget={**limit, "BudgetName": budget_name(world.stack, "us-east-1")}),
    }
    for kept in ("Group", "Schedule", "Budget", "Role"):
        resources[kept]["DeletionPolicy"] = "Retain"
    body = json.dumps({"Description": "lmi-cohost: a test", "Resources": resources})
    world.session.client("cloudformation").create_stack(
        StackName=world.stack, TemplateBody=body, Capabilities=["CAPABILITY_IAM"]
    )
    assert world.settle() == "CREATE_COMPLETE"
    world.delete_by_hand()
    found = clean_up(world.session, world.stack, PATIENCE, everything=False)
    assert {"AWS::Scheduler::Schedule", BUDGET} <= {one.partition(" ")[0] for one in found.removed}
    assert found.faults == ()
    assert world.session.client("scheduler").list_schedules()["Schedules"] == []
    assert world.session.client("budgets").describe_budgets(AccountId="123456789012")["Budgets"] == []


def test_a_protected_stack_is_refused_with_the_way_out(world: World) -> None:
    """A stack with termination protection is rejected with the fix, and nothing of it is deleted."""
    world.create(protected=True)
    outcome = clean_up(world.session, world.stack, PATIENCE, everything=False)
    assert outcome.removed == ()
    assert "--no-enable-termination-protection" in outcome.faults[0]
    assert world.status() == "CREATE_COMPLETE"
    assert [one["EndpointStatus"] for one in world.session.client("sagemaker").list_endpoints()["Endpoints"]] == [
        "InService"
    ]


def test_a_protected_stack_keeps_all_it_has_when_an_earlier_one_had_its_name(world: World) -> None:
    """A protected stack keeps its resources although a deleted stack had the same name."""
    world.create()
    world.delete_by_hand()
    world.create(protected=True)
    outcome = clean_up(world.session, world.stack, PATIENCE, everything=True)
    assert outcome.removed == ()
    assert [one["EndpointName"] for one in world.session.client("sagemaker").list_endpoints()["Endpoints"]] == ["E"]
    assert world.bucket()


def test_a_log_group_that_was_written_to_once_more_goes(world: World) -> None:
    """A log group that SageMaker created again after the deletion of the stack is deleted."""
    world.create()
    world.delete_by_hand()
    world.session.client("logs").create_log_group(logGroupName=LOG_GROUP)
    nothing_is_left(world)


def test_the_log_of_an_endpoint_that_another_stack_made_since_is_left_alone(world: World) -> None:
    """The log group of an endpoint that another stack has created under the same name is kept."""
    world.create()
    world.delete_by_hand()
    deleted = world.stack
    world.next_stack()
    world.create()
    assert clean_up(world.session, deleted, PATIENCE, everything=True).removed == ()
    groups = world.session.client("logs").describe_log_groups()["logGroups"]
    assert [one["logGroupName"] for one in groups] == [LOG_GROUP]


def test_other_stacks_are_never_touched(world: World) -> None:
    """`cohost cleanup` deletes only stacks with the description of this project, even if another is named."""
    foreign = json.dumps({"Description": "theirs", "Resources": {"Logs": of("Logs::LogGroup")}})
    world.session.client("cloudformation").create_stack(StackName=world.stack, TemplateBody=foreign)
    world.settle()
    for name in (world.stack, None):
        assert clean_up(world.session, name, PATIENCE, everything=True).removed == ()
    assert world.status() == "CREATE_COMPLETE"


def test_the_command_asks_tells_and_proves(world: World) -> None:
    """`cohost cleanup` needs --yes without a terminal, changes nothing with --dry-run, and checks its result."""
    world.create()
    runner = CliRunner()
    dry = runner.invoke(cli.app, ["cleanup", "--stack", world.stack, "--dry-run", "--json"])
    assert dry.exit_code == 0
    left = json.loads(dry.stdout)["left"]
    assert [one["name"] for one in left["stacks"]] == [world.stack]
    assert {"type": "AWS::SageMaker::Endpoint", "name": "E"}.items() <= next(
        one for one in left["resources"] if one["bills"] == "every hour, called or not"
    ).items()
    refused = runner.invoke(cli.app, ["cleanup", "--stack", world.stack])
    assert refused.exit_code == 1
    assert "--yes" in str(refused.exception)
    assert world.status() == "CREATE_COMPLETE"
    done = runner.invoke(cli.app, ["cleanup", "--stack", world.stack, "--yes", "--poll", "0.1"])
    assert done.exit_code == 0, done.output
    assert "Still there: nothing of ours, so nothing of ours bills." in done.stdout
    assert find_leftovers(world.session) == {}


def test_orphans_lists_every_endpoint_with_its_price(world: World) -> None:
    """`cohost orphans` lists every endpoint with its price, also those of other projects."""
    world.create()
    (found,) = json.loads(CliRunner().invoke(cli.app, ["orphans", "--json"]).stdout)["us-east-1"]
    assert (found["name"], found["stack"], found["instances"]) == ("E", world.stack, {"ml.g5.xlarge": 1})
    assert found["usd_per_month"] == pytest.approx(1.408 * 730)
    shown = CliRunner().invoke(cli.app, ["orphans"], env={"COLUMNS": "200"}).stdout
    assert "1027.84" in shown


def test_orphans_lists_an_endpoint_whose_configuration_was_deleted(world: World) -> None:
    """`cohost orphans` lists an endpoint whose endpoint config was deleted."""
    world.create()
    sagemaker = world.session.client("sagemaker")
    config = sagemaker.describe_endpoint(EndpointName="E")["EndpointConfigName"]
    sagemaker.delete_endpoint_config(EndpointConfigName=config)
    (found,) = json.loads(CliRunner().invoke(cli.app, ["orphans", "--json"]).stdout)["us-east-1"]
    assert (found["name"], found["instances"], found["usd_per_month"]) == ("E", {"unknown type": 1}, None)


def test_a_refused_delete_is_told_and_does_not_stop_the_rest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource that cannot be deleted is named with the service's reason, and all others are deleted."""
    world.create()
    sagemaker = world.session.client("sagemaker")
    config = sagemaker.describe_endpoint(EndpointName="E")["EndpointConfigName"]
    tags = [{"Key": STACK_TAG, "Value": world.stack}]
    sagemaker.create_endpoint(EndpointName="forgotten", EndpointConfigName=config, Tags=tags)
    # Its log group is made with its first line. After the clean-up has looked, it would be a second thing that is left.
    group = "/aws/sagemaker/Endpoints/forgotten"
    logs = world.session.client("logs")
    wait_for(lambda: logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"])

    def refuse(*_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "not yours"}}, "DeleteEndpoint")

    monkeypatch.setitem(KINDS, ENDPOINT, dataclasses.replace(KINDS[ENDPOINT], remove=refuse))
    outcome = clean_up(world.session, world.stack, PATIENCE, everything=False)
    (fault,) = outcome.faults
    assert "forgotten" in fault
    assert "not yours" in fault
    assert [one.name for one in outcome.after.left(everything=False)] == ["forgotten"]
