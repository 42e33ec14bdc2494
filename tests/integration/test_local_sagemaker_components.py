"""An inference component on a real LMI container, deployed by the embedded CloudFormation and called through boto3."""

from __future__ import annotations

import functools
import io
import json
import tarfile
import threading
import time
from typing import TYPE_CHECKING, Any

import boto3
import httpx
import psutil
import pytest
from botocore.config import Config

from local_aws.hub import default_roots
from local_aws.sagemaker import SageMaker
from local_aws.sagemaker import Settings as SageMakerSettings
from local_aws.server import LocalAws
from local_aws.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
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


def archive(models: Mapping[str, str]) -> bytes:
    """One archive with a folder for each model."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, model_id in models.items():
            text = PROPERTIES.format(model_id=model_id).encode()
            member = tarfile.TarInfo(f"{name}/serving.properties")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
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
        "Role": ("IAM::Role", {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]}}),
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
    """A front door in a thread, and clients of it without retries.

    An instance without copies goes after `instance_idle_s` of a clock that runs at `speed`.
    """

    def __init__(self, state_dir: Path, *, speed: float = 1, instance_idle_s: float = 0) -> None:
        settings = Settings(
            port=0, state_dir=state_dir, hub_roots=tuple(default_roots()), speed=speed, managed_policies=False
        )
        limits = SageMakerSettings(publish_interval_s=0.2, instance_idle_s=instance_idle_s)
        self._server = LocalAws(settings, functools.partial(SageMaker, settings=limits))
        ready = threading.Event()
        self._thread = threading.Thread(target=self._server.serve, args=(lambda _: ready.set(),))
        self._thread.start()
        assert ready.wait(60)
        httpx.post(f"{self._server.url}/moto-api/reset", trust_env=False, timeout=60).raise_for_status()
        self.s3, self.sagemaker, self.runtime = map(self.client, ("s3", "sagemaker", "sagemaker-runtime"))
        self.cloudformation = self.client("cloudformation")
        self.s3.create_bucket(Bucket="models")

    def client(self, service: str) -> Any:
        """A client of a service."""
        session: Any = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
        config = Config(retries={"total_max_attempts": 1})
        return session.client(service, endpoint_url=self._server.url, config=config)

    def page(self, path: str, **put: int) -> Any:
        """What one of the pages of our own answers; with values, they are put there first."""
        url = f"{self._server.url}{path}"
        if put:
            httpx.put(url, json=put, trust_env=False, timeout=60).raise_for_status()
        return httpx.get(url, trust_env=False, timeout=60).json()

    def wait_stack(self, status: str) -> None:
        """Wait until the stack `s` has a status."""
        wait_for(lambda: not self._stack_status().endswith("IN_PROGRESS"), 120)
        assert self._stack_status() == status, self.cloudformation.describe_stack_events(StackName="s")["StackEvents"]

    def _stack_status(self) -> str:
        return str(self.cloudformation.describe_stacks(StackName="s")["Stacks"][0]["StackStatus"])

    def scale(self, copies: int) -> None:
        """Have so many copies of the component."""
        name = {"InferenceComponentName": "all-models"}
        self.sagemaker.update_inference_component_runtime_config(**name, DesiredRuntimeConfig={"CopyCount": copies})
        wait_for(
            lambda: self.sagemaker.describe_inference_component(**name)["InferenceComponentStatus"] == "InService", 60
        )

    def call(self, model: str | None) -> Any:
        """A model's answer to one text."""
        attributes = {} if model is None else {"CustomAttributes": f"trace=abc;model_name={model}"}
        answer = self.runtime.invoke_endpoint(
            EndpointName="e",
            InferenceComponentName="all-models",
            ContentType="application/json",
            Body=b'{"inputs": "the movie was great"}',
            **attributes,
        )
        return json.loads(answer["Body"].read())

    def close(self) -> None:
        """End everything."""
        self._server.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


def wait_for(condition: Callable[[], Any], limit_s: float) -> None:
    """Wait until a condition holds; fails the test if it does not in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Aws]:
    """A front door with an empty bucket; after the test none of its processes is left."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    running = Aws(tmp_path)
    yield running
    running.close()
    assert {child.pid for child in psutil.Process().children(recursive=True)} - before == set()


def test_a_component_serves_several_models_down_to_zero_and_back(aws: Aws) -> None:
    """Deployed as a stack: both models answer, zero copies refuse, a copy answers as before, an update adds a model."""
    aws.s3.put_object(Bucket="models", Key="one.tar.gz", Body=archive({"minilm": MINILM, "mdeberta": MDEBERTA}))
    aws.cloudformation.create_stack(StackName="s", TemplateBody=template("one.tar.gz"), Capabilities=["CAPABILITY_IAM"])
    aws.wait_stack("CREATE_COMPLETE")
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
    assert aws.page("/_cohost/endpoints")["endpoints"][0]["variants"][0]["instances"] == []
    with pytest.raises(aws.runtime.exceptions.ValidationError, match="Inference Component has no capacity"):
        aws.call("minilm")
    aws.scale(1)
    assert {model: aws.call(model) for model in before} == before

    assert aws.page("/_cohost/faults", unavailable_calls=1)["unavailable_calls"] == 1
    with pytest.raises(aws.runtime.exceptions.ServiceUnavailable):
        aws.call("minilm")

    aws.s3.put_object(Bucket="models", Key="two.tar.gz", Body=archive({"minilm": MINILM, "again": MINILM}))
    aws.cloudformation.update_stack(StackName="s", TemplateBody=template("two.tar.gz"), Capabilities=["CAPABILITY_IAM"])
    aws.wait_stack("UPDATE_COMPLETE")
    assert aws.call("again") == aws.call("minilm") == before["minilm"]

    aws.cloudformation.delete_stack(StackName="s")
    # The model and the endpoint go at the same time: the stack is gone when both are.
    wait_for(lambda: aws.cloudformation.list_stacks()["StackSummaries"][0]["StackStatus"] == "DELETE_COMPLETE", 60)
    assert aws.sagemaker.list_models()["Models"] == []
    assert aws.sagemaker.list_endpoints()["Endpoints"] == []
    assert aws.sagemaker.list_inference_components()["InferenceComponents"] == []
