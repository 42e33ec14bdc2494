"""The embedded SageMaker with real LMI containers: archives from S3, loaded by workers, called through boto3."""

from __future__ import annotations

import functools
import io
import json
import os
import signal
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted
from fakes.refusals import refused

import local_aws
from local_aws.engines.engine import EngineError
from local_aws.engines.report import report_on
from local_aws.engines.serving import servers_of
from local_aws.lmi.container import Container
from local_aws.sagemaker.routes import SageMaker
from local_aws.sagemaker.settings import Settings
from local_aws.testing import serving_role
from local_aws.testing.running import FrontDoor, leaving_no_process, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

HUB = Path(local_aws.__file__).parent / "data" / "hub"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"
PROPERTIES = """engine=Python
option.model_id={model_id}
option.task=text-classification
option.rolling_batch=disable
gpu.minWorkers=1
gpu.maxWorkers=1
cpu.minWorkers=1
cpu.maxWorkers=1
required_memory_mb={memory_mb}
option.tensor_parallel_degree=1
"""


class Aws:
    """A front door with an empty bucket, and functions for an endpoint on it."""

    def __init__(self, door: FrontDoor) -> None:
        self.door = door
        self.s3, self.iam, self.logs = map(door.client, ("s3", "iam", "logs"))
        self.sagemaker, self.runtime = map(door.client, ("sagemaker", "sagemaker-runtime"))
        self.s3.create_bucket(Bucket="models")

    def push(self, name: str, model_id: str, memory_mb: int) -> None:
        """Upload an archive that contains one serving.properties."""
        text = PROPERTIES.format(model_id=model_id, memory_mb=memory_mb).encode()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            member = tarfile.TarInfo("serving.properties")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
        self.s3.put_object(Bucket="models", Key=f"p/{name}.tar.gz", Body=buffer.getvalue())

    def deploy(self, **container: str) -> None:
        """An endpoint `e` whose container is as given."""
        role = serving_role(self.iam, "r")
        whole = {"Image": IMAGE, **container}
        self.sagemaker.create_model(ModelName="m", PrimaryContainer=whole, ExecutionRoleArn=role)
        variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1}
        self.sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
        self.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
        wait_for(lambda: self.sagemaker.describe_endpoint(EndpointName="e")["EndpointStatus"] != "Creating")
        assert self.sagemaker.describe_endpoint(EndpointName="e")["EndpointStatus"] == "InService"

    def invoke(self, name: str | None, text: str) -> Any:
        """Return the container's answer to one text; None calls the model of a single-model endpoint."""
        target = {} if name is None else {"TargetModel": f"{name}.tar.gz"}
        body = json.dumps({"inputs": text}).encode()
        answer = self.runtime.invoke_endpoint(EndpointName="e", ContentType="application/json", Body=body, **target)
        return json.loads(answer["Body"].read())

    def instance(self) -> dict[str, Any]:
        """Return the only instance, from the introspection route."""
        endpoints = self.door.page("/_cohost/endpoints")["endpoints"]
        found: dict[str, Any] = endpoints[0]["variants"][0]["instances"][0]
        return found


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Aws]:
    """Start an emulator with an empty bucket, and end all of its processes after the test."""
    limits = Settings(publish_interval_s=0.2, replacement_delay_s=0)
    make = functools.partial(SageMaker, start_container=Container.start, settings=limits)
    with leaving_no_process(), running(tmp_path, make, hub_roots=(HUB,)) as door:
        yield Aws(door)


def test_models_are_fetched_loaded_called_evicted_and_survive_a_kill(aws: Aws) -> None:
    """Three models are fetched, loaded, called, evicted and restarted on a container with memory for two."""
    aws.push("mdeberta", "lmi-cohost/tiny-mdeberta-nli", 6000)
    aws.push("minilm", "lmi-cohost/tiny-minilm-nli", 6000)
    aws.push("xlmr", "lmi-cohost/tiny-xlmr-nli", 6000)
    aws.push("homeless", "lmi-cohost/not-there", 100)
    aws.deploy(Mode="MultiModel", ModelDataUrl="s3://models/p/")

    first = aws.invoke("mdeberta", "the movie was great")
    assert [set(item) for item in first] == [{"label", "score"}]
    assert aws.invoke("mdeberta", "the movie was great") == first
    aws.invoke("minilm", "한국어 문장")
    aws.invoke("xlmr", "still answered")
    assert [model["target"] for model in aws.instance()["models"]] == ["minilm.tar.gz", "xlmr.tar.gz"]
    assert aws.instance()["evictions"] == 1

    with faulted("ValidationError", 400, "Failed to download model data"):
        aws.invoke("nobody", "x")

    killed = aws.instance()["pid"]
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: aws.instance()["ready"] and aws.instance()["pid"] != killed)
    assert aws.invoke("mdeberta", "the movie was great") == first

    with pytest.raises(aws.runtime.exceptions.ModelError) as caught:
        aws.invoke("homeless", "x")
    assert caught.value.response["OriginalStatusCode"] == 500
    assert "lmi-cohost/not-there" in caught.value.response["OriginalMessage"]
    wait_for(lambda: "lmi-cohost/not-there" in Path(aws.instance()["log_file"]).read_text())
    wait_for(lambda: aws.logs.describe_log_groups()["logGroups"])


def test_a_report_reads_the_containers_of_endpoints(aws: Aws, tmp_path: Path) -> None:
    """`cohost local report` reads the containers of endpoints with the containers' tokens."""
    aws.push("minilm", "lmi-cohost/tiny-minilm-nli", 6000)
    aws.deploy(Mode="MultiModel", ModelDataUrl="s3://models/p/")
    aws.invoke("minilm", "the movie was great")
    (server,) = servers_of(tmp_path)
    report = report_on(server)
    assert [(model.status, model.workers) for model in report.models] == [("Healthy", 1)]
    assert server.token not in json.dumps(report.content())
    with refused("engine-not-answering", kind=EngineError):
        report_on(replace(server, token="a guess"))


def test_a_single_model_is_served_from_its_archive(aws: Aws) -> None:
    """A container in SingleModel mode loads its archive at the start and answers without a target."""
    aws.push("one", "lmi-cohost/tiny-minilm-nli", 100)
    aws.deploy(Mode="SingleModel", ModelDataUrl="s3://models/p/one.tar.gz")
    assert [set(item) for item in aws.invoke(None, "the movie was great")] == [{"label", "score"}]
