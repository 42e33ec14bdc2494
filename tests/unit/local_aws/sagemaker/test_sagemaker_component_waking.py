"""The client against a component at zero, with the service's own error, metric and states."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.endpoint.client import CohostClient
from cohost.endpoint.stack_outputs import Deployment
from cohost.errors import InvocationError, NoCapacityError, RoutingError
from cohost.waiting import Clock
from local_aws.testing.sagemaker_cloud import client

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process

DEPLOYMENT = Deployment(
    stack_name="S",
    endpoint_name="e",
    bucket="models",
    prefix="p/",
    generation="0123456789ab",
    model_data_url="s3://models/p/all.tar.gz",
    region="us-east-1",
    topology="scale-to-zero",
    models={"mini": "mini", "nli": "nli"},
    inference_component_name="c",
)


class Caller:
    """A client of the component whose pauses end by the test."""

    def __init__(self, cloud: Cloud) -> None:
        self.go_on = threading.Event()
        self.pausing = threading.Event()
        runtime, sagemaker = client("sagemaker-runtime", cloud.url), client("sagemaker", cloud.url)
        self.client = CohostClient(
            DEPLOYMENT, runtime=runtime, s3=cloud.s3, sagemaker=sagemaker, clock=Clock(sleep=self._sleep)
        )

    def _sleep(self, _: float) -> None:
        self.pausing.set()
        assert self.go_on.wait(60)
        time.sleep(0.01)

    def call(self, model: str, *, wake: bool = True) -> str:
        """Return the name of the model that the fake container was called with."""
        answer: dict[str, str] = self.client.invoke(model, "a", wake=wake, custom_attributes="trace=abc")
        return answer["answer"]


def test_both_models_answer_by_name(cloud: Cloud) -> None:
    """SageMaker's emulation accepts the client's arguments, and the container finds each model by its name."""
    cloud.serve_component()
    caller = Caller(cloud)

    assert [caller.call(model, wake=False) for model in ("mini", "nli")] == ["mini", "nli"]


def test_zero_is_told_apart_from_other_refusals(cloud: Cloud, wait: Callable[..., None]) -> None:
    """The text of SageMaker's rejection at zero copies is recognised, and other 400s are not."""
    cloud.serve_component()
    caller = Caller(cloud)
    cloud.scale_component(0)

    with refused("no-capacity", kind=NoCapacityError):
        caller.call("mini", wake=False)
    with refused("model-not-deployed", kind=RoutingError):
        caller.call("other")
    cloud.sagemaker.delete_inference_component(InferenceComponentName="c")
    wait(lambda: cloud.sagemaker.list_inference_components()["InferenceComponents"] == [])
    with refused("endpoint-answer", kind=InvocationError) as caught:
        caller.call("mini")
    assert not isinstance(caught.value, NoCapacityError)


def test_many_callers_at_zero_are_one_refused_call(cloud: Cloud, wait: Callable[..., None]) -> None:
    """Of twenty callers at zero copies one retries, and all are answered when a copy runs."""
    cloud.serve_component()
    caller = Caller(cloud)
    cloud.scale_component(0)
    with ThreadPoolExecutor(21) as pool:
        first = pool.submit(caller.call, "mini")
        assert caller.pausing.wait(60)
        others = [pool.submit(caller.call, model) for model in ("mini", "nli") * 10]
        cloud.scale_component(1)
        caller.go_on.set()
        answers = [call.result(60) for call in (first, *others)]
    assert answers == ["mini", *("mini", "nli") * 10]
    wait(lambda: cloud.statistic("NoCapacityInvocationFailures", "Sum", InferenceComponentName="c") == 1)


def test_a_copy_that_starts_is_waited_for(cloud: Cloud) -> None:
    """While an instance and a container start, nothing is called that would count as a further failure."""
    cloud.serve_component()
    caller = Caller(cloud)
    caller.go_on.set()
    cloud.scale_component(0)
    cloud.factory.delay_s = 0.3

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(caller.call, "nli")
        assert caller.pausing.wait(60)
        cloud.sagemaker.update_inference_component_runtime_config(
            InferenceComponentName="c", DesiredRuntimeConfig={"CopyCount": 1}
        )
        assert call.result(60) == "nli"
    assert cloud.component()["RuntimeConfig"]["CurrentCopyCount"] == 1
