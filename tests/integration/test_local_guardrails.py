"""A bad model under guardrails: its errors set off an alarm, and calls and stack return to the old model."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
import threading
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from local_aws.sagemaker.routes import SageMaker
from local_aws.testing import SERVING_POLICY
from local_aws.testing.fake_container import FakeFactory
from local_aws.testing.running import FrontDoor, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

# A minute of the alarm is a second.
FAST = 60
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"
NAME, VARIANT = "guarded", "AllTraffic"


@pytest.fixture
def door(tmp_path: Any) -> Iterator[FrontDoor]:
    """A front door with the embedded SageMaker, whose containers are played."""

    def make_sagemaker(**arguments: Any) -> SageMaker:
        return SageMaker(**arguments, start_container=FakeFactory())

    with running(tmp_path, make_sagemaker, speed=FAST) as front_door:
        yield front_door


def put_model(door: FrontDoor, prefix: str, files: dict[str, str]) -> None:
    """Upload an archive whose files control the fake container."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    door.client("s3").put_object(Bucket="models", Key=f"{prefix}/nli.tar.gz", Body=packed.getvalue())


def template(prefix: str) -> str:
    """Return role, model, endpoint config, an alarm for errors, and an endpoint that the alarm guards."""
    trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    container = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": f"s3://models/{prefix}/"}
    variant = {
        "VariantName": VARIANT,
        "ModelName": {"Fn::GetAtt": ["Model", "ModelName"]},
        "InstanceType": "ml.g5.xlarge",
        "InitialInstanceCount": 1,
    }
    alarm = {
        "Namespace": "AWS/SageMaker",
        "MetricName": "InvocationModelErrors",
        "Dimensions": [{"Name": "EndpointName", "Value": NAME}, {"Name": "VariantName", "Value": VARIANT}],
        "Statistic": "Average",
        "Period": 60,
        "EvaluationPeriods": 3,
        "DatapointsToAlarm": 2,
        "Threshold": 0.05,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
    }
    guardrails = {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0},
            "TerminationWaitInSeconds": 3600,
        },
        "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": {"Ref": "Errors"}}]},
    }
    resources: dict[str, tuple[str, dict[str, Any]]] = {
        "Role": ("AWS::IAM::Role", {"AssumeRolePolicyDocument": {"Statement": [trust]}, "Policies": [SERVING_POLICY]}),
        "Model": (
            "AWS::SageMaker::Model",
            {"ExecutionRoleArn": {"Fn::GetAtt": ["Role", "Arn"]}, "PrimaryContainer": container},
        ),
        "Config": ("AWS::SageMaker::EndpointConfig", {"ProductionVariants": [variant]}),
        "Errors": ("AWS::CloudWatch::Alarm", alarm),
        "Endpoint": (
            "AWS::SageMaker::Endpoint",
            {
                "EndpointName": NAME,
                "EndpointConfigName": {"Fn::GetAtt": ["Config", "EndpointConfigName"]},
                "DeploymentConfig": guardrails,
            },
        ),
    }
    return json.dumps(
        {"Resources": {name: {"Type": kind, "Properties": said} for name, (kind, said) in resources.items()}}
    )


@contextlib.contextmanager
def calling(door: FrontDoor) -> Iterator[list[str]]:
    """Call the model repeatedly, and yield each answer, or "error" for a failed call."""
    runtime, answers, ended = door.client("sagemaker-runtime"), list[str](), threading.Event()

    def call() -> None:
        while not ended.wait(0.02):
            try:
                answer = runtime.invoke_endpoint(EndpointName=NAME, TargetModel="nli.tar.gz", Body=b"{}")
                answers.append(json.loads(answer["Body"].read())["answer"])
            except ClientError:
                answers.append("error")

    caller = threading.Thread(target=call)
    caller.start()
    try:
        yield answers
    finally:
        ended.set()
        caller.join()


def test_bad_model_is_taken_back_with_its_stack(door: FrontDoor) -> None:
    """A model that loads but fails its calls sets off the alarm, and the stack is rolled back."""
    door.client("s3").create_bucket(Bucket="models")
    put_model(door, "good", {"answer": "good"})
    put_model(door, "bad", {"answer": "bad", "behaviour": "invoke_status=500"})
    cloudformation, sagemaker = door.client("cloudformation"), door.client("sagemaker")
    cloudformation.create_stack(StackName="s", TemplateBody=template("good"), Capabilities=["CAPABILITY_IAM"])
    door.settle("CREATE_COMPLETE")
    before = sagemaker.describe_endpoint(EndpointName=NAME)["EndpointConfigName"]
    with calling(door) as answers:
        wait_for(lambda: "good" in answers)
        cloudformation.update_stack(StackName="s", TemplateBody=template("bad"), Capabilities=["CAPABILITY_IAM"])
        wait_for(lambda: "error" in answers)
        door.settle("UPDATE_ROLLBACK_COMPLETE")
        failed_so_far = len(answers)
        wait_for(lambda: answers[failed_so_far:].count("good") > 10)
        assert "error" not in answers[failed_so_far + 5 :]
    described = sagemaker.describe_endpoint(EndpointName=NAME)
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", before)
    events = cloudformation.describe_stack_events(StackName="s")["StackEvents"]
    reasons = [event.get("ResourceStatusReason", "") for event in events]
    assert any("rolled back because of CloudWatch alarms in state ALARM" in reason for reason in reasons)
