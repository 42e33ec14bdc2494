"""Calls of inference components: the chosen component and copy, and the metrics."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process


def test_one_container_serves_the_models_of_one_archive(cloud: Cloud) -> None:
    """The folders of one archive are a container's models, which `model_name` chooses."""
    cloud.serve_component()
    (container,) = cloud.factory.started
    assert container.options["multi_model"] is False
    store: Path = container.options["model_store"]
    assert sorted(entry.name for entry in store.iterdir()) == ["mini", "nli"]
    assert "SAGEMAKER_MULTI_MODEL" not in container.options["environment"]
    assert container.options["memory_mb"] == 16384
    assert cloud.call_component("mini")["answer"] == "mini"
    assert cloud.call_component("nli")["answer"] == "nli"
    attributes = "trace=abc;model_name=nli"
    answer = cloud.runtime.invoke_endpoint(
        EndpointName="e", InferenceComponentName="c", CustomAttributes=attributes, Body=b"{}"
    )
    assert json.loads(answer["Body"].read())["answer"] == "nli"
    assert answer["InvokedProductionVariant"] == "AllTraffic"


@pytest.mark.parametrize(("model", "status"), [(None, 400), ("NLI", 404), ("../nli", 404)])
def test_a_wrong_model_name_is_the_containers_error(cloud: Cloud, model: str | None, status: int) -> None:
    """A wrong model_name gives the ModelError of the container, because SageMaker does not read the name."""
    cloud.serve_component()
    with pytest.raises(cloud.runtime.exceptions.ModelError) as caught:
        cloud.call_component(model)
    assert caught.value.response["OriginalStatusCode"] == status
    assert caught.value.response["LogStreamArn"].endswith("log-group:/aws/sagemaker/InferenceComponents/c")


def test_calls_name_their_component(cloud: Cloud) -> None:
    """A call without a component, with a target model or with an unknown component is a ValidationError."""
    cloud.serve_component()
    missing = (
        "Inference Component Name header is required for endpoints to which you plan to deploy inference components. "
        "Please include Inference Component Name header or consider using SageMaker models."
    )
    refusals: list[tuple[dict[str, Any], str]] = [
        ({}, missing),
        ({"TargetModel": "nli.tar.gz"}, missing),
        ({"TargetModel": "nli.tar.gz", "InferenceComponentName": "c"}, "target model header"),
        ({"InferenceComponentName": "other"}, "other"),
        ({"InferenceComponentName": "C"}, "Component C "),
        ({"InferenceComponentName": "c", "TargetVariant": "v"}, "Variant v"),
    ]
    for more, about in refusals:
        with faulted("ValidationError", 400, about):
            cloud.runtime.invoke_endpoint(EndpointName="e", Body=b"{}", **more)


def test_a_component_of_another_endpoint_is_not_found(cloud: Cloud) -> None:
    """A component of another endpoint is not found."""
    cloud.serve_component()
    cloud.sagemaker.create_endpoint(EndpointName="e2", EndpointConfigName="config")
    cloud.wait_status("InService", "e2")
    with faulted("ValidationError", 400, "endpoint e2"):
        cloud.runtime.invoke_endpoint(EndpointName="e2", InferenceComponentName="c", Body=b"{}")


def test_calls_spread_over_the_copies(cloud: Cloud, wait: Callable[..., None]) -> None:
    """Simultaneous calls go to both of two copies."""
    cloud.deploy_components()
    cloud.put_model("all.tar.gz", **{"mini/answer": "mini", "mini/behaviour": "invoke=held"})
    cloud.create_component(copies=2)
    cloud.wait_component("InService")
    cloud.factory.gate.shut()
    answers: list[dict[str, Any]] = []
    callers = [threading.Thread(target=lambda: answers.append(cloud.call_component())) for _ in range(4)]
    for caller in callers:
        caller.start()
    endpoint: Any = cloud.service.state.endpoints.get("e")
    (variant,) = endpoint.fleet.variants.values()
    wait(lambda: cloud.look(lambda: sum(copy.replica.in_flight for copy in variant.placed)) == 4)
    cloud.factory.gate.open()
    for caller in callers:
        caller.join()
    assert sorted([a["port"] for a in answers].count(c.url.rpartition(":")[2]) for c in cloud.factory.running) == [2, 2]


def test_copies_that_are_dead_are_service_unavailable(make_cloud: Callable[..., Cloud]) -> None:
    """A copy that is placed but does not live is an outage, not missing capacity."""
    cloud = make_cloud(alive_interval_s=30)
    cloud.serve_component()
    cloud.factory.failing = True
    cloud.run(cloud.factory.started[0].die())
    with faulted("ServiceUnavailable", 503, "inference component c"):
        cloud.call_component()
    cloud.factory.failing = False


def test_calls_of_components_are_measured(make_cloud: Callable[..., Cloud], wait: Callable[..., None]) -> None:
    """Calls of a component are counted for it, per copy and at once, and for its variant."""
    cloud = make_cloud(concurrency_interval_s=0.1)
    cloud.serve_component(copies=2)
    for _ in range(4):
        cloud.call_component()
    # What is recorded last of a call reaches CloudWatch last, so the rest is there too.
    wait(lambda: cloud.statistic("InvocationModelErrors", "SampleCount", InferenceComponentName="c") == 4)
    assert cloud.statistic("Invocations", "Sum", InferenceComponentName="c") == 4
    assert cloud.statistic("InvocationsPerCopy", "Sum", InferenceComponentName="c") == 2
    assert cloud.statistic("ModelLatency", "SampleCount", InferenceComponentName="c") == 4
    assert cloud.statistic("OverheadLatency", "SampleCount", InferenceComponentName="c") == 4
    assert cloud.statistic("Invocations", "Sum") == 4
    # The calls can be told before the interval of this one is over, and zeros come before them and after.
    wait(lambda: cloud.statistic("ConcurrentRequestsPerCopy", "Maximum", InferenceComponentName="c") == 0.5)
    wait(lambda: cloud.statistic("ConcurrentRequestsPerCopy", "Minimum", InferenceComponentName="c") == 0)
    assert cloud.statistic("NoCapacityInvocationFailures", "Sum", InferenceComponentName="c") is None


def test_log_lines_go_to_the_components_group(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A copy writes to the component's log group, in a stream that names variant and instance."""
    cloud.serve_component()
    group = "/aws/sagemaker/InferenceComponents/c"
    wait(lambda: [g["logGroupName"] for g in cloud.logs.describe_log_groups()["logGroups"]] == [group])
    wait(lambda: cloud.logs.describe_log_streams(logGroupName=group)["logStreams"])
    (stream,) = cloud.logs.describe_log_streams(logGroupName=group)["logStreams"]
    assert stream["logStreamName"].startswith(f"AllTraffic/{cloud.instances()[0]['id']}-")
