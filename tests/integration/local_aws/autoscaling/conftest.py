"""Fixtures: a whole server with fake containers, and clients of it."""

from __future__ import annotations

import functools
import io
import os
import tarfile
import threading
from typing import TYPE_CHECKING, Any

import pytest

from cohost.deploy import local_aws as local
from local_aws.kit.clients import Clients
from local_aws.sagemaker.routes import SageMaker
from local_aws.sagemaker.settings import Settings as SageMakerSettings
from local_aws.server import LocalAws, Settings
from local_aws.testing import serving_role, wait_for
from local_aws.testing.fake_container import FakeFactory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"


def describe(clients: Clients) -> Any:
    """The component's description."""
    return clients.get("sagemaker").describe_inference_component(InferenceComponentName="c")


# moto's state belongs to the process: a front door that outlived its file would go on publishing metrics among those of
# other files' tests, and find its own bucket and role gone when they begin anew.
@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    """A front door whose minute is half a second."""
    settings = Settings(port=0, state_dir=tmp_path_factory.mktemp("state"), speed=120, managed_policies=False)
    limits = SageMakerSettings(publish_interval_s=0.1)
    make = functools.partial(SageMaker, settings=limits, start_container=FakeFactory())
    server, ready = LocalAws(settings, make), threading.Event()
    thread = threading.Thread(target=server.serve, args=(lambda _: ready.set(),))
    thread.start()
    assert ready.wait(60)
    local.LocalServer(url=server.url, pid=os.getpid(), state=settings.state_dir).ask("/moto-api/reset", method="POST")
    yield server
    server.stop()
    thread.join(60)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def clients(front: LocalAws) -> Clients:
    """boto3 clients of the front door."""
    return Clients(lambda: front.url)


@pytest.fixture(scope="module")
def endpoint(clients: Clients) -> None:
    """Return the names of the endpoint's config and model, and its status."""
    role = serving_role(clients.get("iam"), "execution")
    s3, sagemaker = clients.get("s3"), clients.get("sagemaker")
    s3.create_bucket(Bucket="models")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    s3.put_object(Bucket="models", Key="one.tar.gz", Body=buffer.getvalue())
    container = {"Image": IMAGE, "ModelDataUrl": "s3://models/one.tar.gz"}
    sagemaker.create_model(ModelName="model", PrimaryContainer=container, ExecutionRoleArn=role)
    plain = {"VariantName": "v", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1}
    managed = {"ManagedInstanceScaling": {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 4}}
    for name, variant in (("e", {**plain, **managed}), ("m", {**plain, "ModelName": "model"})):
        sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant], ExecutionRoleArn=role)
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    for name in ("e", "m"):
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=name, WaiterConfig={"Delay": 1})
    needs = {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": 1}
    sagemaker.create_inference_component(
        InferenceComponentName="c",
        EndpointName="e",
        VariantName="v",
        Specification={"ModelName": "model", "ComputeResourceRequirements": needs},
        RuntimeConfig={"CopyCount": 1},
    )
    wait_for(lambda: describe(clients)["InferenceComponentStatus"] == "InService")


@pytest.fixture
def component(clients: Clients, endpoint: None) -> Callable[[], Any]:  # noqa: ARG001 - what is described
    """Describes component `c`."""
    return lambda: describe(clients)


@pytest.fixture
def wait() -> Callable[..., None]:
    """Wait until a condition holds."""
    return wait_for
