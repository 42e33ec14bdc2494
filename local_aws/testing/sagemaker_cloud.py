"""The emulated SageMaker with fake containers for tests, moto for the other services, and boto3 clients for both."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import tarfile
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
import httpx
from botocore.config import Config

from local_aws import testing
from local_aws.kit.access_keys import AccessKeys
from local_aws.sagemaker.hosting.production_variants import ModelVariant
from local_aws.sagemaker.routes import SageMaker
from local_aws.testing import serving_role
from local_aws.testing.fake_container import FakeFactory, Gate, Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from local_aws.kit.clock import Clock
    from local_aws.sagemaker.hosting.replicas import Replica
    from local_aws.sagemaker.model_cache.cache import ModelCache
    from local_aws.sagemaker.settings import Settings

# The pause is short, because statuses last only some hundredths of a second with fake containers.
wait_for = partial(testing.wait_for, pause_s=0.01)
REGION = "us-east-1"
ACCOUNT = "123456789012"
IMAGE = f"763104351884.dkr.ecr.{REGION}.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"


def client(service: str, url: str, *, attempts: int = 1, parameter_validation: bool = True) -> Any:
    """Make a boto3 client that calls a service at a URL, and sends each call at most `attempts` times."""
    config = Config(
        retries={"total_max_attempts": attempts},
        s3={"addressing_style": "path"},
        max_pool_connections=64,
        parameter_validation=parameter_validation,
    )
    keys: Any = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    session: Any = boto3
    return session.client(service, endpoint_url=url, region_name=REGION, config=config, **keys)


class Cloud:
    """The emulated SageMaker under test, running in its own thread, with helpers for tests.

    In each intermediate status, such as Creating, endpoints and inference components wait at the gate `transitions`.
    """

    def __init__(self, moto_url: str, state_dir: Path, settings: Settings, clock: Clock | None = None) -> None:
        self.factory = FakeFactory()
        self.state_dir = state_dir
        self.s3 = client("s3", moto_url)
        self.iam = client("iam", moto_url)
        self.logs = client("logs", moto_url)
        self.cloudwatch = client("cloudwatch", moto_url)
        self.keys = AccessKeys()
        self.transitions = Gate()
        self.service = SageMaker(
            endpoint_url=lambda: moto_url,
            state_dir=state_dir,
            hub_roots=[],
            account_id=ACCOUNT,
            region=REGION,
            settings=settings,
            start_container=self.factory,
            clock=clock,
            keys=self.keys,
            on_transition=self.transitions.passed,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._listener = Listener(self.service.asgi)
        self.url = self.run(self._listener.start())
        self.run(self.service.startup())
        self.sagemaker = client("sagemaker", self.url)
        # This client sends requests without boto3's own checks, so that tests reach those of the emulation.
        self.unchecked = client("sagemaker", self.url, parameter_validation=False)
        self.runtime = client("sagemaker-runtime", self.url)
        self.role = serving_role(self.iam, "execution")
        self.s3.create_bucket(Bucket="models")

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the event loop of the emulated SageMaker."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def look(self, at: Callable[[], Any]) -> Any:
        """Call `at` in the emulated SageMaker's thread, so that no state changes meanwhile; return the result."""

        async def found() -> Any:
            return at()

        return self.run(found())

    def close(self) -> None:
        """Shut the emulated SageMaker down and end its requests to moto, since the next test uses the same moto."""
        self.run(self.service.shutdown())
        self._loop.call_soon_threadsafe(self._listener.stop)
        self.run(asyncio.sleep(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def retrying_runtime(self) -> Any:
        """Make a SageMaker Runtime client that retries a call once."""
        return client("sagemaker-runtime", self.url, attempts=2)

    def put_model(self, name: str, *, prefix: str = "p/", **files: str) -> None:
        """Upload an archive of the given files (name=text) to s3://models/ with the key `prefix` + `name`."""
        self.s3.put_object(Bucket="models", Key=f"{prefix}{name}", Body=archive(files))

    def create_model(self, name: str = "model", **container: Any) -> str:
        """Create a multi-model SageMaker model with ModelDataUrl s3://models/p/; `container` overrides its members."""
        whole = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": "s3://models/p/", **container}
        whole = {key: value for key, value in whole.items() if value is not None}
        answer = self.sagemaker.create_model(ModelName=name, PrimaryContainer=whole, ExecutionRoleArn=self.role)
        return str(answer["ModelArn"])

    def create_config(
        self, name: str = "config", model: str = "model", count: int = 1, *, unchecked: bool = False, **variant: Any
    ) -> str:
        """Create an endpoint configuration with one production variant; `variant` overrides the variant's members."""
        whole = {
            "VariantName": "AllTraffic",
            "ModelName": model,
            "InstanceType": "ml.g5.xlarge",
            "InitialInstanceCount": count,
            **variant,
        }
        whole = {key: value for key, value in whole.items() if value is not None}
        sagemaker = self.unchecked if unchecked else self.sagemaker
        answer = sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[whole])
        return str(answer["EndpointConfigArn"])

    def deploy(self, count: int = 1, **container: Any) -> None:
        """Create model, configuration and endpoint `e`, and wait until it is in service."""
        self.create_model(**container)
        self.create_config(count=count)
        self.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="config")
        self.wait_status("InService")

    def deploy_components(self, *, initial: int = 1, minimum: int = 0, maximum: int = 2, **variant: Any) -> None:
        """Create model `model` (archive p/all.tar.gz) and endpoint `e` for inference components; wait for InService."""
        self.put_model("all.tar.gz", **{"mini/answer": "mini", "nli/answer": "nli"})
        self.create_model(Mode=None, ModelDataUrl="s3://models/p/all.tar.gz")
        self.create_component_config(initial=initial, minimum=minimum, maximum=maximum, **variant)
        self.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="config")
        self.wait_status("InService")

    def create_component_config(
        self, name: str = "config", *, initial: int = 1, minimum: int = 0, maximum: int = 2, **variant: Any
    ) -> None:
        """Create a configuration with ManagedInstanceScaling for inference components; `variant` overrides members."""
        scaling = {"Status": "ENABLED", "MinInstanceCount": minimum, "MaxInstanceCount": maximum}
        whole = {
            "VariantName": "AllTraffic",
            "InstanceType": "ml.g5.xlarge",
            "InitialInstanceCount": initial,
            "ManagedInstanceScaling": scaling,
            **variant,
        }
        whole = {key: value for key, value in whole.items() if value is not None}
        self.sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[whole], ExecutionRoleArn=self.role
        )

    def create_component(self, name: str = "c", copies: int | None = 1, **specification: Any) -> str:
        """Create an inference component on endpoint `e`; `specification` overrides members, and None removes one."""
        needs = {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": 1}
        whole = {"ModelName": "model", "ComputeResourceRequirements": needs, **specification}
        whole = {key: value for key, value in whole.items() if value is not None}
        runtime = {} if copies is None else {"RuntimeConfig": {"CopyCount": copies}}
        answer = self.unchecked.create_inference_component(
            InferenceComponentName=name, EndpointName="e", VariantName="AllTraffic", Specification=whole, **runtime
        )
        return str(answer["InferenceComponentArn"])

    def serve_component(self, copies: int = 1, **deployment: Any) -> None:
        """Run `deploy_components`, create component `c` with `copies` copies, and wait until it is in service."""
        self.deploy_components(**deployment)
        self.create_component(copies=copies)
        self.wait_component("InService")

    def component(self, name: str = "c") -> dict[str, Any]:
        """Return the answer of DescribeInferenceComponent for a component."""
        answer: dict[str, Any] = self.sagemaker.describe_inference_component(InferenceComponentName=name)
        return answer

    def wait_component(self, status: str, name: str = "c") -> dict[str, Any]:
        """Wait until an inference component has a status, and return its description."""
        wait_for(lambda: self.component(name)["InferenceComponentStatus"] == status)
        return self.component(name)

    def scale_component(self, copies: int, name: str = "c") -> dict[str, Any]:
        """Set a component's copy count, wait until the component is in service again, and return its description."""
        self.sagemaker.update_inference_component_runtime_config(
            InferenceComponentName=name, DesiredRuntimeConfig={"CopyCount": copies}
        )
        return self.wait_component("InService", name)

    def call_component(self, model: str | None = "mini", name: str | None = "c", **more: Any) -> dict[str, Any]:
        """Call a model of an inference component and return the fake container's answer."""
        if name is not None:
            more["InferenceComponentName"] = name
        if model is not None:
            more["CustomAttributes"] = f"model_name={model}"
        return self.invoke(None, **more)

    def instances(self) -> list[dict[str, Any]]:
        """Return the instances of the first endpoint's first variant from the page /_cohost/endpoints."""
        endpoints = httpx.get(f"{self.url}/_cohost/endpoints", trust_env=False, timeout=60).json()["endpoints"]
        found: list[dict[str, Any]] = endpoints[0]["variants"][0]["instances"]
        return found

    def statistic(self, name: str, kind: str, *, namespace: str = "AWS/SageMaker", **dimensions: str) -> Any:
        """Return a metric's statistic over the last 5 minutes, by default of endpoint `e`; None without data."""
        now = datetime.now(UTC)
        wanted = dimensions or {"EndpointName": "e", "VariantName": "AllTraffic"}
        points = self.cloudwatch.get_metric_statistics(
            Namespace=namespace,
            MetricName=name,
            Dimensions=[{"Name": key, "Value": value} for key, value in wanted.items()],
            StartTime=now - timedelta(minutes=5),
            EndTime=now + timedelta(minutes=5),
            Period=3600,
            Statistics=[kind],
        )["Datapoints"]
        return points[0][kind] if points else None

    def invoke(self, target: str | None = "a.tar.gz", body: str = "{}", **more: Any) -> dict[str, Any]:
        """Call endpoint `e` and return the fake container's answer."""
        if target is not None:
            more["TargetModel"] = target
        answer = self.runtime.invoke_endpoint(EndpointName="e", Body=body.encode(), **more)
        content: dict[str, Any] = json.loads(answer["Body"].read())
        return content

    def invoke_in_the_end(self, target: str) -> str:
        """Repeat a call until it is answered, since a busy machine may exceed a test's short time limits."""
        answers: list[str] = []

        def answered() -> bool:
            with contextlib.suppress(
                self.runtime.exceptions.ModelNotReadyException, self.runtime.exceptions.ModelError
            ):
                answers.append(self.invoke(target)["answer"])
            return bool(answers)

        wait_for(answered)
        return answers[0]

    def replica(self, number: int = 0) -> Replica:
        """Return the emulator's `Replica` object of one container of endpoint `e`, by its number from 0."""
        fleet = self.service.state.endpoints.get("e").fleet
        variant = None if fleet is None else fleet.variants["AllTraffic"]
        assert isinstance(variant, ModelVariant)
        return variant.replicas[number]

    def cache(self) -> ModelCache:
        """Return the `ModelCache` object of endpoint `e`'s first container."""
        cache = self.replica().cache
        assert cache is not None
        return cache

    def status(self, endpoint: str = "e") -> dict[str, Any]:
        """Return the answer of DescribeEndpoint for an endpoint."""
        answer: dict[str, Any] = self.sagemaker.describe_endpoint(EndpointName=endpoint)
        return answer

    def wait_status(self, status: str, endpoint: str = "e") -> dict[str, Any]:
        """Wait until an endpoint has a status, and return its description."""
        wait_for(lambda: self.status(endpoint)["EndpointStatus"] == status)
        return self.status(endpoint)


def archive(files: dict[str, str]) -> bytes:
    """Pack files, given as texts by file name, into a gzip-compressed tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def in_threads(*calls: Callable[[], Any]) -> list[Any]:
    """Make each call in its own thread; return the calls' results or exceptions in order."""
    outcomes: list[Any] = [None] * len(calls)

    def run(number: int) -> None:
        try:
            outcomes[number] = calls[number]()
        except Exception as fault:  # noqa: BLE001 - the test looks at it
            outcomes[number] = fault

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
