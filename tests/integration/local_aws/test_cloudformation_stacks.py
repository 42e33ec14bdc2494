"""CloudFormation with boto3, moto's resources, and a custom resource with a handler of these tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import WaiterError
from fakes.faults import faulted
from stack_template import only, policy, resource, template

from local_aws.testing.running import FrontDoor, running

if TYPE_CHECKING:
    from collections.abc import Iterator

CAPABILITIES = ["CAPABILITY_NAMED_IAM"]


@pytest.fixture
def door(tmp_path: Any) -> Iterator[FrontDoor]:
    """Start a front door for each test; deleting the stacks empties moto's state."""
    with running(tmp_path) as front_door:
        yield front_door


def outputs_of(cloudformation: Any) -> dict[str, str]:
    """The outputs of the stack `s`."""
    stack = cloudformation.describe_stacks(StackName="s")["Stacks"][0]
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def keys(door: FrontDoor, bucket: str) -> list[str]:
    """The keys of a bucket."""
    return [entry["Key"] for entry in door.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])]


def test_whole_life_of_a_stack_like_ours(door: FrontDoor) -> None:
    """A stack is created, updated with replacements, rolled back after a failure, and deleted completely."""
    cloudformation, fake = door.client("cloudformation"), door.sagemaker
    cloudformation.create_stack(StackName="s", TemplateBody=template("one"), Capabilities=CAPABILITIES)
    door.settle("CREATE_COMPLETE")
    first = outputs_of(cloudformation)
    bucket = first["Bucket"]
    assert first["Url"] == f"s3://{bucket}/one/"
    assert keys(door, bucket) == ["one"]
    (variant,) = next(iter(fake.configs.values()))["ProductionVariants"]
    assert variant["InitialInstanceCount"] == 1
    assert {"Key": "aws:cloudformation:stack-name", "Value": "s"} in next(iter(fake.models.values()))["Tags"]

    cloudformation.update_stack(StackName="s", TemplateBody=template("two"), Capabilities=CAPABILITIES)
    door.settle("UPDATE_COMPLETE")
    assert outputs_of(cloudformation)["Url"] == f"s3://{bucket}/two/"
    assert keys(door, bucket) == ["two"]
    assert len(fake.models) == len(fake.configs) == len(fake.endpoints) == 1
    kept = (dict(fake.models), dict(fake.configs), dict(fake.endpoints))

    cloudformation.update_stack(
        StackName="s", TemplateBody=template("three", instance_type="ml.broken"), Capabilities=CAPABILITIES
    )
    door.settle("UPDATE_ROLLBACK_COMPLETE")
    events = cloudformation.describe_stack_events(StackName="s")["StackEvents"]
    failed = next(event for event in events if event["ResourceStatus"] == "UPDATE_FAILED")
    assert failed["ResourceStatusReason"] == "Endpoint lmi is Failed: no such machine"
    assert keys(door, bucket) == ["two"]
    assert (fake.models, fake.configs, fake.endpoints) == kept

    door.delete_stack()
    assert fake.models == fake.configs == fake.endpoints == {}
    assert door.client("lambda").list_functions()["Functions"] == []
    assert "s-Role" not in json.dumps(door.client("iam").list_roles()["Roles"], default=str)
    assert door.client("logs").describe_log_groups(logGroupNamePrefix="s-")["logGroups"] == []
    assert bucket not in [entry["Name"] for entry in door.client("s3").list_buckets()["Buckets"]]


def test_handler_that_refuses_rolls_back_with_its_reason(door: FrontDoor) -> None:
    """The text of a failed handler is the reason of the event, and its log group has its lines."""
    cloudformation = door.client("cloudformation")
    cloudformation.create_stack(StackName="s", TemplateBody=template("bad"), Capabilities=CAPABILITIES)
    door.settle("ROLLBACK_COMPLETE")
    events = cloudformation.describe_stack_events(StackName="s")["StackEvents"]
    failed = next(event for event in events if event["ResourceStatus"] == "CREATE_FAILED")
    assert "Message returned: the content is bad" in failed["ResourceStatusReason"]
    assert cloudformation.list_stack_resources(StackName="s")["StackResourceSummaries"] == []


def test_bucket_with_objects_fails_the_deletion(door: FrontDoor) -> None:
    """The deletion of a stack fails while its bucket has objects, and succeeds once the bucket is empty."""
    cloudformation, s3 = door.client("cloudformation"), door.client("s3")
    only_bucket = only("Bucket", "AWS::S3::Bucket", BucketName="full-one")
    cloudformation.create_stack(StackName="s", TemplateBody=only_bucket)
    door.settle("CREATE_COMPLETE")
    s3.put_object(Bucket="full-one", Key="k", Body=b"")
    cloudformation.delete_stack(StackName="s")
    door.settle("DELETE_FAILED")
    events = cloudformation.describe_stack_events(StackName="s")["StackEvents"]
    failed = next(event for event in events if event["ResourceStatus"] == "DELETE_FAILED")
    assert "The bucket you tried to delete is not empty" in json.dumps(events, default=str)
    assert failed["ResourceStatusReason"]
    s3.delete_object(Bucket="full-one", Key="k")
    door.delete_stack()


def test_name_that_is_taken_fails_and_is_left_alone(door: FrontDoor) -> None:
    """A bucket name that exists fails the stack, and the rollback does not delete that bucket."""
    cloudformation, s3 = door.client("cloudformation"), door.client("s3")
    s3.create_bucket(Bucket="somebodys")
    taken = only("Bucket", "AWS::S3::Bucket", BucketName="somebodys")
    cloudformation.create_stack(StackName="s", TemplateBody=taken)
    door.settle("ROLLBACK_COMPLETE")
    assert "already exists" in json.dumps(
        cloudformation.describe_stack_events(StackName="s")["StackEvents"], default=str
    )
    s3.head_bucket(Bucket="somebodys")
    s3.delete_bucket(Bucket="somebodys")


def test_updates_that_look_like_replacements(door: FrontDoor) -> None:
    """As the schemas say: an inline policy is renamed in place, and a key keeps its spec or the update fails."""
    cloudformation, iam = door.client("cloudformation"), door.client("iam")

    reading = policy("Allow", "s3:GetObject", Resource="*")

    def text(policy_name: str, spec: str) -> str:
        properties = {"PolicyName": policy_name, "Roles": [{"Ref": "Role"}], "PolicyDocument": reading}
        trust = policy("Allow", "sts:AssumeRole", Principal={"Service": "lambda.amazonaws.com"})
        resources = {
            "Role": resource("AWS::IAM::Role", RoleName="renamed", AssumeRolePolicyDocument=trust),
            "Policy": resource("AWS::IAM::Policy", **properties),
            "Key": resource("AWS::KMS::Key", KeySpec=spec, PendingWindowInDays=7),
        }
        return json.dumps({"Resources": resources})

    for name in ("first", "second"):
        change = cloudformation.create_stack if name == "first" else cloudformation.update_stack
        change(StackName="s", TemplateBody=text(name, "SYMMETRIC_DEFAULT"), Capabilities=CAPABILITIES)
        door.settle("CREATE_COMPLETE" if name == "first" else "UPDATE_COMPLETE")
        assert iam.list_role_policies(RoleName="renamed")["PolicyNames"] == [name]
    cloudformation.update_stack(StackName="s", TemplateBody=text("second", "HMAC_256"), Capabilities=CAPABILITIES)
    door.settle("UPDATE_ROLLBACK_COMPLETE")
    door.delete_stack()


def test_template_from_s3_and_parameters_from_ssm(door: FrontDoor) -> None:
    """Path-style and virtual-host URLs name a template; an SSM parameter and a dynamic reference are read."""
    cloudformation, s3, ssm = door.client("cloudformation"), door.client("s3"), door.client("ssm")
    ssm.put_parameter(Name="/v", Value="seven", Type="String")
    properties = {"Type": "String", "Value": {"Fn::Sub": "${P}-{{resolve:ssm:/v}}"}}
    text = json.dumps(
        {
            "Parameters": {"P": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/v"}},
            "Resources": {"Made": {"Type": "AWS::SSM::Parameter", "Properties": properties}},
        }
    )
    s3.create_bucket(Bucket="templates")
    s3.put_object(Bucket="templates", Key="t.json", Body=text.encode())
    for number, url in enumerate(
        (f"{door.server.url}/templates/t.json", "https://templates.s3.us-east-1.amazonaws.com/t.json")
    ):
        cloudformation.create_stack(StackName=f"s{number}", TemplateURL=url)
        door.settle("CREATE_COMPLETE", f"s{number}")
        name = cloudformation.describe_stack_resource(StackName=f"s{number}", LogicalResourceId="Made")
        physical_id = name["StackResourceDetail"]["PhysicalResourceId"]
        assert ssm.get_parameter(Name=physical_id)["Parameter"]["Value"] == "seven-seven"
        door.delete_stack(f"s{number}")
    ssm.delete_parameter(Name="/v")
    s3.delete_object(Bucket="templates", Key="t.json")
    s3.delete_bucket(Bucket="templates")


def test_change_set_by_boto3(door: FrontDoor) -> None:
    """boto3's waiters and typed errors work for change sets, including an empty and a missing one."""
    cloudformation = door.client("cloudformation")
    text = only("P", "AWS::SSM::Parameter", Type="String", Value="1")
    names = {"StackName": "s", "ChangeSetName": "c"}
    cloudformation.create_change_set(**names, ChangeSetType="CREATE", TemplateBody=text)
    cloudformation.get_waiter("change_set_create_complete").wait(**names, WaiterConfig={"Delay": 1})
    cloudformation.execute_change_set(**names)
    door.settle("CREATE_COMPLETE")
    with faulted("ValidationError", 400, "No updates are to be performed."):
        cloudformation.update_stack(StackName="s", TemplateBody=text)
    cloudformation.create_change_set(**{**names, "ChangeSetName": "empty"}, TemplateBody=text)
    with pytest.raises(WaiterError):
        cloudformation.get_waiter("change_set_create_complete").wait(
            **{**names, "ChangeSetName": "empty"}, WaiterConfig={"Delay": 1}
        )
    with pytest.raises(cloudformation.exceptions.ChangeSetNotFoundException):
        cloudformation.describe_change_set(StackName="s", ChangeSetName="never")
    with pytest.raises(cloudformation.exceptions.AlreadyExistsException):
        cloudformation.create_stack(StackName="s", TemplateBody=text)
    assert json.dumps(cloudformation.get_template(StackName="s")["TemplateBody"]) == text
    summary = cloudformation.get_template_summary(TemplateBody=text)
    assert summary["ResourceTypes"] == ["AWS::SSM::Parameter"]
    assert [one["StackName"] for one in cloudformation.list_stacks()["StackSummaries"]] == ["s"]
    with faulted("ValidationError", 400, "[AWS::EC2::Instance]"):
        cloudformation.validate_template(TemplateBody='{"Resources": {"I": {"Type": "AWS::EC2::Instance"}}}')
    with faulted("InvalidAction", 400, "DetectStackDrift"):
        cloudformation.detect_stack_drift(StackName="s")
    door.delete_stack()
