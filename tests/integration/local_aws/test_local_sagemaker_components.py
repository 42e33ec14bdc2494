"""An inference component on a real LMI container, deployed by the embedded CloudFormation and called through boto3."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted

from cohost.endpoint.load_failures import LogWatch
from local_aws.lmi.container import Container
from local_aws.lmi.models.hub import default_roots
from local_aws.sagemaker.routes import SageMaker
from local_aws.sagemaker.settings import Settings as SageMakerSettings
from local_aws.testing import SERVING_POLICY
from local_aws.testing.running import FrontDoor, leaving_no_process, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"
PROPERTIES = """engine=Python
option.model_id={model_id}
option.task=text-classification
option.rolling_batch=disable
cpu.minWorkers=1
cpu.maxWorkers=1
gpu.minWorkers=1
gpu.maxWorkers=1
required_memory_mb=100
"""
MINILM, MDEBERTA = "lmi-cohost/tiny-minilm-nli", "lmi-cohost/tiny-mdeberta-nli"


REFUSES = """
def handle(inputs):
    raise ValueError("labels do not fit the head")
"""


def archive(models: Mapping[str, str], **handlers: str) -> bytes:
    """Return one archive with a folder per model, and a model.py for the models that have one."""
    files = {f"{name}/serving.properties": PROPERTIES.format(model_id=model_id) for name, model_id in models.items()}
    files |= {f"{name}/model.py": text for name, text in handlers.items()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def template(key: str) -> str:
    """A stack like that of the scale-to-zero topology: role, model, configuration, endpoint, component."""
    trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    role = {"Fn::GetAtt": ["Role", "Arn"]}
    container = {"Image": IMAGE, "ModelDataUrl": f"s3://models/{key}"}
    variant = {
        "VariantName": "AllTraffic",
        "InstanceType": "ml.g5.xlarge",
        "InitialInstanceCount": 1,
        "ManagedInstanceScaling": {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 2},
    }
    component = {
        "InferenceComponentName": "all-models",
        "EndpointName": {"Fn::GetAtt": ["Endpoint", "EndpointName"]},
        "VariantName": "AllTraffic",
        "Specification": {
            "ModelName": {"Fn::GetAtt": ["Model", "ModelName"]},
            "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": 1},
        },
        "RuntimeConfig": {"CopyCount": 1},
    }
    resources = {
        "Role": (
            "IAM::Role",
            {
                "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
                "Policies": [SERVING_POLICY],
            },
        ),
        "Model": ("SageMaker::Model", {"PrimaryContainer": container, "ExecutionRoleArn": role}),
        "Config": ("SageMaker::EndpointConfig", {"ProductionVariants": [variant], "ExecutionRoleArn": role}),
        "Endpoint": (
            "SageMaker::Endpoint",
            {"EndpointName": "e", "EndpointConfigName": {"Fn::GetAtt": ["Config", "EndpointConfigName"]}},
        ),
        "Component": ("SageMaker::InferenceComponent", component),
    }
    whole = {name: {"Type": f"AWS::{kind}", "Properties": values} for name, (kind, values) in resources.items()}
    return json.dumps({"Resources": whole, "Outputs": {"Arn": {"Value": {"Ref": "Component"}}}})


class Aws:
    """A front door with an empty bucket, and functions for a component on it."""

    def __init__(self, door: FrontDoor) -> None:
        self.door = door
        self.s3, self.sagemaker, self.runtime = map(door.client, ("s3", "sagemaker", "sagemaker-runtime"))
        self.cloudformation = door.client("cloudformation")
        self.s3.create_bucket(Bucket="models")

    def create(self, body: str) -> None:
        """Create the stack `s`."""
        self.cloudformation.create_stack(StackName="s", TemplateBody=body, Capabilities=["CAPABILITY_IAM"])
        self.door.settle("CREATE_COMPLETE")

    def scale(self, copies: int) -> None:
        """Set the number of copies of the component."""
        name = {"InferenceComponentName": "all-models"}
        self.sagemaker.update_inference_component_runtime_config(**name, DesiredRuntimeConfig={"CopyCount": copies})
        wait_for(lambda: self.sagemaker.describe_inference_component(**name)["InferenceComponentStatus"] == "InService")

    def call(self, model: str | None) -> Any:
        """Return a model's answer to one text."""
        attributes = {} if model is None else {"CustomAttributes": f"trace=abc;model_name={model}"}
        answer = self.runtime.invoke_endpoint(
            EndpointName="e",
            InferenceComponentName="all-models",
            ContentType="application/json",
            Body=b'{"inputs": "the movie was great"}',
            **attributes,
        )
        return json.loads(answer["Body"].read())


@contextlib.contextmanager
def serving(state_dir: Path, *, instance_idle_s: float = 0) -> Iterator[Aws]:
    """Start a front door with real containers, whose instances end soon without copies, and stop it afterwards."""
    limits = SageMakerSettings(publish_interval_s=0.2, instance_idle_s=instance_idle_s)
    make = functools.partial(SageMaker, start_container=Container.start, settings=limits)
    with leaving_no_process(), running(state_dir, make, hub_roots=tuple(default_roots())) as door:
        yield Aws(door)


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Aws]:
    """A front door with an empty bucket."""
    with serving(tmp_path) as made:
        yield made


def test_a_component_serves_several_models_down_to_zero_and_back(aws: Aws) -> None:
    """A component serves two models, rejects calls at zero copies, serves again, and gets a model by an update."""
    aws.s3.put_object(Bucket="models", Key="one.tar.gz", Body=archive({"minilm": MINILM, "mdeberta": MDEBERTA}))
    aws.create(template("one.tar.gz"))
    (output,) = aws.cloudformation.describe_stacks(StackName="s")["Stacks"][0]["Outputs"]
    assert output["OutputValue"].endswith(":inference-component/all-models")

    before = {model: aws.call(model) for model in ("minilm", "mdeberta")}
    assert [set(item) for item in before["minilm"]] == [{"label", "score"}]
    assert before["minilm"] != before["mdeberta"]
    for model, status in ((None, 400), ("other", 404)):
        with pytest.raises(aws.runtime.exceptions.ModelError) as caught:
            aws.call(model)
        assert caught.value.response["OriginalStatusCode"] == status

    aws.scale(0)
    assert aws.door.page("/_cohost/endpoints")["endpoints"][0]["variants"][0]["instances"] == []
    with faulted("ValidationError", 400, "Inference Component has no capacity"):
        aws.call("minilm")
    aws.scale(1)
    assert {model: aws.call(model) for model in before} == before

    assert aws.door.page("/_cohost/faults", unavailable_calls=1)["unavailable_calls"] == 1
    with pytest.raises(aws.runtime.exceptions.ServiceUnavailable):
        aws.call("minilm")

    aws.s3.put_object(Bucket="models", Key="two.tar.gz", Body=archive({"minilm": MINILM, "again": MINILM}))
    aws.cloudformation.update_stack(StackName="s", TemplateBody=template("two.tar.gz"), Capabilities=["CAPABILITY_IAM"])
    aws.door.settle("UPDATE_COMPLETE")
    assert aws.call("again") == aws.call("minilm") == before["minilm"]

    aws.door.delete_stack()
    assert aws.sagemaker.list_models()["Models"] == []
    assert aws.sagemaker.list_endpoints()["Endpoints"] == []
    assert aws.sagemaker.list_inference_components()["InferenceComponents"] == []


@pytest.mark.parametrize(
    ("models", "handlers", "reason"),
    [
        ({"x-l": "lmi-cohost/not-there"}, {}, "lmi-cohost/not-there is not in the local hub"),
        (
            {"x-l": MINILM},
            {"x-l": REFUSES},
            "Failed to initialize model: invoke handler failure (ValueError: labels do not fit the head)",
        ),
    ],
)
def test_the_log_names_the_one_model_that_does_not_load(
    aws: Aws, models: dict[str, str], handlers: dict[str, str], reason: str
) -> None:
    """A stack with a bad model fails with SageMaker's message, and the component's log names model and reason."""
    body = archive({"minilm": MINILM, **models}, **handlers)
    aws.s3.put_object(Bucket="models", Key="one.tar.gz", Body=body)
    aws.cloudformation.create_stack(StackName="s", TemplateBody=template("one.tar.gz"), Capabilities=["CAPABILITY_IAM"])
    aws.door.settle("ROLLBACK_COMPLETE")
    events = aws.cloudformation.describe_stack_events(StackName="s")["StackEvents"]
    failed = [event["ResourceStatusReason"] for event in events if event["ResourceStatus"] == "CREATE_FAILED"]
    assert any(
        "container of inference component all-models did not pass the ping health check" in one for one in failed
    )
    assert not any("x-l" in one for one in failed)
    watch = LogWatch(aws.door.client("logs"), ["minilm", "x-l"], since_ms=0)
    watch.look(["/aws/sagemaker/InferenceComponents/all-models"])
    (failure,) = watch.reader.failures
    assert failure.model == "x-l"
    assert reason in failure.reason
