"""An embedded SageMaker with fake containers, moto for the other services, and boto3 clients of both."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
import threading
import time
from typing import TYPE_CHECKING, Any

import boto3
import httpx
import pytest
from botocore.config import Config
from fake_lmi import FakeFactory, Listener
from moto.server import ThreadedMotoServer

from local_aws.sagemaker import SageMaker, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

REGION = "us-east-1"
ACCOUNT = "123456789012"
IMAGE = f"763104351884.dkr.ecr.{REGION}.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"


def client(service: str, url: str) -> Any:
    """A boto3 client without retries."""
    config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}, max_pool_connections=64)
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return boto3.client(service, endpoint_url=url, region_name=REGION, config=config, **keys)


class Cloud:
    """The emulation under test, running in a thread of its own, and what tests do with it."""

    def __init__(self, moto_url: str, state_dir: Path, settings: Settings) -> None:
        self.factory = FakeFactory()
        self.state_dir = state_dir
        self.s3 = client("s3", moto_url)
        self.iam = client("iam", moto_url)
        self.logs = client("logs", moto_url)
        self.cloudwatch = client("cloudwatch", moto_url)
        self.service = SageMaker(
            endpoint_url=lambda: moto_url,
            state_dir=state_dir,
            hub_roots=[],
            account_id=ACCOUNT,
            region=REGION,
            settings=settings,
            start_container=self.factory,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._listener = Listener(self.service.asgi)
        self.url = self.run(self._listener.start())
        self.run(self.service.startup())
        self.sagemaker = client("sagemaker", self.url)
        self.runtime = client("sagemaker-runtime", self.url)
        self.role = self._role("execution", "sagemaker.amazonaws.com")
        self.s3.create_bucket(Bucket="models")

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the emulation's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def close(self) -> None:
        """Shut the emulation down."""
        self.run(self.service.shutdown())
        self._loop.call_soon_threadsafe(self._listener.stop)
        self.run(asyncio.sleep(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def put_model(self, name: str, *, prefix: str = "p/", **files: str) -> None:
        """Upload an archive `name` that holds the given files."""
        self.s3.put_object(Bucket="models", Key=f"{prefix}{name}", Body=archive(files))

    def create_model(self, name: str = "model", **container: Any) -> str:
        """Create a multi-model SageMaker Model on s3://models/p/."""
        whole = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": "s3://models/p/", **container}
        whole = {key: value for key, value in whole.items() if value is not None}
        answer = self.sagemaker.create_model(ModelName=name, PrimaryContainer=whole, ExecutionRoleArn=self.role)
        return str(answer["ModelArn"])

    def create_config(self, name: str = "config", model: str = "model", count: int = 1, **variant: Any) -> str:
        """Create an endpoint configuration with one variant."""
        whole = {
            "VariantName": "AllTraffic",
            "ModelName": model,
            "InstanceType": "ml.g5.xlarge",
            "InitialInstanceCount": count,
            **variant,
        }
        whole = {key: value for key, value in whole.items() if value is not None}
        answer = self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[whole])
        return str(answer["EndpointConfigArn"])

    def deploy(self, count: int = 1, **container: Any) -> None:
        """Create model, configuration and endpoint `e`, and wait until it is in service."""
        self.create_model(**container)
        self.create_config(count=count)
        self.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="config")
        self.wait_status("InService")

    def invoke(self, target: str | None = "a.tar.gz", body: str = "{}", **more: Any) -> dict[str, Any]:
        """Call endpoint `e`; the fake container's answer."""
        if target is not None:
            more["TargetModel"] = target
        answer = self.runtime.invoke_endpoint(EndpointName="e", Body=body.encode(), **more)
        content: dict[str, Any] = json.loads(answer["Body"].read())
        return content

    def status(self, endpoint: str = "e") -> dict[str, Any]:
        """DescribeEndpoint."""
        answer: dict[str, Any] = self.sagemaker.describe_endpoint(EndpointName=endpoint)
        return answer

    def wait_status(self, status: str, endpoint: str = "e") -> dict[str, Any]:
        """Wait until the endpoint has a status."""
        wait_for(lambda: self.status(endpoint)["EndpointStatus"] == status)
        return self.status(endpoint)

    def _role(self, name: str, service: str) -> str:
        statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        return str(self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=policy)["Role"]["Arn"])


def archive(files: dict[str, str]) -> bytes:
    """A gzip-compressed tar of the given files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def wait_for(condition: Callable[[], Any], limit_s: float = 10) -> None:
    """Wait until a condition holds; fails the test if it does not in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """One moto server for all tests."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def make_cloud(moto_url: str, tmp_path: Path) -> Iterator[Callable[..., Cloud]]:
    """Makes an emulation with settings of the test's own."""
    clouds: list[Cloud] = []

    def make(**settings: Any) -> Cloud:
        reset(moto_url)
        whole = {"publish_interval_s": 0.05, "alive_interval_s": 0.02, "ping_interval_s": 0.05, **settings}
        clouds.append(Cloud(moto_url, tmp_path, Settings(**whole)))
        return clouds[-1]

    yield make
    for cloud in clouds:
        cloud.close()
        assert cloud.factory.running == []


@pytest.fixture
def cloud(make_cloud: Callable[..., Cloud]) -> Cloud:
    """An emulation with the service's own time limits."""
    return make_cloud()


@pytest.fixture
def wait() -> Callable[..., None]:
    """Waits until a condition holds."""
    return wait_for


@pytest.fixture
def pack() -> Callable[[dict[str, str]], bytes]:
    """Packs files into an archive."""
    return archive


def reset(moto_url: str) -> None:
    """Empty moto."""
    httpx.post(f"{moto_url}/moto-api/reset", trust_env=False).raise_for_status()
