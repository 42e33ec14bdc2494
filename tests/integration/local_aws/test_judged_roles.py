"""Calls of roles are judged: of the user who acts as one, of CloudFormation, and of services that get a role passed."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted
from stack_template import only, policy

from local_aws.testing import serving_role
from local_aws.testing.running import FrontDoor, running, session

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCOUNT = "123456789012"
DEPLOYER = f"arn:aws:iam::{ACCOUNT}:role/deployer"
TOPIC = only("Topic", "AWS::SNS::Topic", TopicName="t")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontDoor]:
    """One front door, whose user acts as the role `deployer`."""
    with running(tmp_path_factory.mktemp("state"), act_as=DEPLOYER) as front_door:
        yield front_door


@pytest.fixture(scope="module")
def iam(door: FrontDoor) -> Any:
    """IAM with the administrator's key, and the role that the user acts as."""
    client = administrator(door, "iam")
    trust = policy("Allow", "sts:AssumeRole", Principal={"AWS": ACCOUNT})
    client.create_role(RoleName="deployer", AssumeRolePolicyDocument=json.dumps(trust))
    return client


def administrator(door: FrontDoor, service: str) -> Any:
    """A client with the key of `cohost local env --administrator`."""
    environment = door.environment(administrator=True)
    return session().client(
        service,
        endpoint_url=door.server.url,
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )


def allow(iam: Any, role: str, *actions: str, **fields: Any) -> None:
    """Give a role exactly these rights."""
    document = policy("Allow", list(actions), Resource="*", **fields)
    iam.put_role_policy(RoleName=role, PolicyName="own", PolicyDocument=json.dumps(document))


def test_user_has_the_rights_of_the_role(door: FrontDoor, iam: Any) -> None:
    """The answer to a missing right is AWS's, and GetCallerIdentity names the session of the role."""
    allow(iam, "deployer", "s3:ListAllMyBuckets")
    assert door.client("s3").list_buckets()["Buckets"] == []
    identity = door.client("sts").get_caller_identity()
    assert identity["Arn"] == f"arn:aws:sts::{ACCOUNT}:assumed-role/deployer/cohost"
    denial = f"User: {identity['Arn']} is not authorized to perform: sns:CreateTopic on resource: "
    with faulted("AccessDenied", 403, about=denial):
        door.client("sns").create_topic(Name="t")


def test_stack_without_a_role_is_changed_with_the_rights_of_the_caller(door: FrontDoor, iam: Any) -> None:
    """A role that may create a stack and no topic gets a stack whose event has the denial."""
    allow(iam, "deployer", "cloudformation:*")
    door.client("cloudformation").create_stack(StackName="s", TemplateBody=TOPIC)
    door.settle("ROLLBACK_COMPLETE")
    text = reasons(door)
    assert "is not authorized to perform: sns:CreateTopic on resource: arn:aws:sns:us-east-1:123456789012:t" in text
    assert "HandlerErrorCode: AccessDenied" in text


def test_stack_with_a_role_is_changed_with_the_rights_of_the_role(door: FrontDoor, iam: Any) -> None:
    """The caller needs no right on the topic, but the one to pass the role; each action of the schema is judged."""
    role = serving_role(iam, "cfn", "cloudformation.amazonaws.com")
    allow(iam, "cfn", "sns:CreateTopic", "sns:DeleteTopic", "sns:GetTopicAttributes", "sns:ListTagsForResource")
    allow(iam, "deployer", "cloudformation:*")
    client = door.client("cloudformation")
    with faulted("AccessDenied", 403, about="iam:PassRole"):
        client.create_stack(StackName="role", TemplateBody=TOPIC, RoleARN=role)
    allow(iam, "deployer", "cloudformation:*", "iam:PassRole")
    client.create_stack(StackName="role", TemplateBody=TOPIC, RoleARN=role)
    door.settle("ROLLBACK_COMPLETE", "role")
    # The schema of a topic lists this action among those that read the topic for its attributes.
    assert "is not authorized to perform: sns:" in reasons(door, "role")
    allow(iam, "cfn", "sns:*")
    door.delete_stack("role")
    client.create_stack(StackName="role", TemplateBody=TOPIC, RoleARN=role)
    door.settle("CREATE_COMPLETE", "role")
    door.delete_stack("role")


def test_role_that_does_not_trust_cloudformation_is_refused(door: FrontDoor, iam: Any) -> None:
    """A stack cannot get such a role, nor one that does not exist."""
    role = serving_role(iam, "not-cfn", "lambda.amazonaws.com")
    allow(iam, "deployer", "*")
    for arn in (role, f"{role}-missing"):
        with faulted("ValidationError", 400, about=f"Role {arn} is invalid or cannot be assumed"):
            door.client("cloudformation").create_stack(StackName="untrusted", TemplateBody=TOPIC, RoleARN=arn)


def test_role_that_its_service_may_not_assume_is_refused(door: FrontDoor, iam: Any) -> None:
    """Lambda, EventBridge Scheduler and SageMaker refuse a role whose trust policy names another service."""
    allow(iam, "deployer", "*")
    role = serving_role(iam, "of-nobody", "ec2.amazonaws.com")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("index.py", "def handler(event, context): return 1")
    function = {"Runtime": "python3.13", "Handler": "index.handler", "Code": {"ZipFile": packed.getvalue()}}
    with faulted("InvalidParameterValueException", about="cannot be assumed by Lambda"):
        door.client("lambda").create_function(FunctionName="f", Role=role, **function)
    target = {"Arn": f"arn:aws:sns:us-east-1:{ACCOUNT}:t", "RoleArn": role}
    window = {"FlexibleTimeWindow": {"Mode": "OFF"}, "ScheduleExpression": "rate(1 day)"}
    with faulted("ValidationException", about="must allow AWS EventBridge Scheduler to assume the role"):
        door.client("scheduler").create_schedule(Name="s", Target=target, **window)


def test_function_whose_role_lost_its_trust_is_not_run(door: FrontDoor, iam: Any) -> None:
    """Trust is asked for at each call, not only when the role is passed."""
    allow(iam, "deployer", "*")
    role = serving_role(iam, "trusting", "lambda.amazonaws.com")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("index.py", "def handler(event, context): return 1")
    client = door.client("lambda")
    code = {"ZipFile": packed.getvalue()}
    client.create_function(FunctionName="g", Role=role, Runtime="python3.13", Handler="index.handler", Code=code)
    assert client.invoke(FunctionName="g")["Payload"].read() == b"1"
    trust = policy("Allow", "sts:AssumeRole", Principal={"Service": "ec2.amazonaws.com"})
    iam.update_assume_role_policy(RoleName="trusting", PolicyDocument=json.dumps(trust))
    with faulted("AccessDeniedException", 403):
        client.invoke(FunctionName="g")


def test_missing_object_is_denied_to_a_caller_who_may_not_list_it(door: FrontDoor, iam: Any) -> None:
    """404 with s3:ListBucket for the key as a prefix, 403 without; an object that exists is read in both cases."""
    allow(iam, "deployer", "*")
    s3 = door.client("s3")
    s3.create_bucket(Bucket="judged")
    s3.put_object(Bucket="judged", Key="a/there", Body=b"x")
    reading = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    listing = {
        "Effect": "Allow",
        "Action": "s3:ListBucket",
        "Resource": "arn:aws:s3:::judged",
        "Condition": {"StringLike": {"s3:prefix": "a/*"}},
    }
    document = {"Version": "2012-10-17", "Statement": [reading, listing]}
    iam.put_role_policy(RoleName="deployer", PolicyName="own", PolicyDocument=json.dumps(document))
    assert s3.get_object(Bucket="judged", Key="a/there")["Body"].read() == b"x"
    with faulted("NoSuchKey", 404):
        s3.get_object(Bucket="judged", Key="a/missing")
    with faulted("404", 404):
        s3.head_object(Bucket="judged", Key="a/missing")
    with faulted("AccessDenied", 403, about="s3:ListBucket"):
        s3.get_object(Bucket="judged", Key="b/missing")
    with faulted("403", 403):
        s3.head_object(Bucket="judged", Key="b/missing")
    with faulted("NoSuchBucket", 404):
        s3.get_object(Bucket="no-such-bucket", Key="b/missing")


def reasons(door: FrontDoor, stack: str = "s") -> str:
    """The reasons of a stack's events."""
    allow(administrator(door, "iam"), "deployer", "*")
    events = door.client("cloudformation").describe_stack_events(StackName=stack)["StackEvents"]
    return "\n".join(event.get("ResourceStatusReason", "") for event in events)
