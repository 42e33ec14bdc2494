"""The metrics and logs of endpoints, and the introspection route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process

GROUP = "/aws/sagemaker/Endpoints/e"


def test_calls_and_loads_are_measured(cloud: Cloud, wait: Callable[..., None]) -> None:
    """Invocations, latencies, cache hits and loading times reach CloudWatch with the service's names."""
    cloud.put_model("a.tar.gz", answer="a", behaviour="load=0.1")
    cloud.deploy()
    for _ in range(4):
        cloud.invoke()
    # What is recorded last of a call reaches CloudWatch last, so the rest is there too.
    wait(lambda: cloud.statistic("InvocationModelErrors", "SampleCount") == 4)
    assert cloud.statistic("Invocations", "Sum") == 4
    assert cloud.statistic("ModelCacheHit", "Average") == 0.75
    assert cloud.statistic("ModelLoadingTime", "Minimum") >= 100_000
    assert cloud.statistic("ModelLoadingWaitTime", "SampleCount") == 1
    assert cloud.statistic("ModelDownloadingTime", "SampleCount") == 1
    # The wait for the model is overhead, and no part of the model's own latency.
    assert cloud.statistic("OverheadLatency", "Maximum") >= cloud.statistic("ModelLoadingWaitTime", "Maximum")
    assert cloud.statistic("ModelLatency", "Minimum") > 0
    assert cloud.statistic("InvocationModelErrors", "Sum") == 0


def test_instances_report_while_they_are_there(cloud: Cloud, wait: Callable[..., None]) -> None:
    """Each instance reports a value per minute even without calls, so an idle endpoint differs from a deleted one."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy(count=2)
    space = {"namespace": "/aws/sagemaker/Endpoints"}
    wait(lambda: cloud.statistic("CPUUtilization", "SampleCount", **space) == 2)
    assert 0 < cloud.statistic("MemoryUtilization", "Average", **space) <= 100
    assert 0 < cloud.statistic("DiskUtilization", "Average", **space) <= 100


def test_unloading_is_measured(cloud: Cloud, wait: Callable[..., None]) -> None:
    """An eviction gives ModelUnloadingTime, and a reload is a cache miss."""
    for name in "ab":
        cloud.put_model(f"{name}.tar.gz", answer=name)
    cloud.factory.room = 1
    cloud.deploy()
    for name in "aba":
        cloud.invoke(f"{name}.tar.gz")
    wait(lambda: cloud.statistic("InvocationModelErrors", "SampleCount") == 3)
    assert cloud.statistic("ModelCacheHit", "SampleCount") == 3
    assert cloud.statistic("ModelCacheHit", "Sum") == 0
    assert cloud.statistic("ModelUnloadingTime", "SampleCount") == 2
    # What was fetched once stays on the instance's disk.
    assert cloud.statistic("ModelDownloadingTime", "SampleCount") == 2
    assert cloud.statistic("ModelLoadingTime", "SampleCount") == 3


def test_load_on_instances_is_measured(make_cloud: Callable[..., Cloud], wait: Callable[..., None]) -> None:
    """The metrics for scaling are calls per instance, and for one model also the concurrency."""
    cloud = make_cloud(concurrency_interval_s=0.1)
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy(count=2, Mode=None, ModelDataUrl="s3://models/p/a.tar.gz")
    for _ in range(4):
        cloud.invoke(None)
    wait(lambda: cloud.statistic("InvocationsPerInstance", "Sum") == 2)
    # The calls can be told before the interval of this one is over, and zeros come before them and after.
    wait(lambda: cloud.statistic("ConcurrentRequestsPerModel", "Maximum") == 0.5)
    wait(lambda: cloud.statistic("ConcurrentRequestsPerModel", "Minimum") == 0)


def test_concurrency_is_not_measured_on_a_multi_model_endpoint(
    make_cloud: Callable[..., Cloud], wait: Callable[..., None]
) -> None:
    """A multi-model endpoint sends no concurrency metric, because no source documents one there."""
    cloud = make_cloud(concurrency_interval_s=0.1)
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    cloud.invoke()
    wait(lambda: cloud.statistic("CPUUtilization", "SampleCount", namespace="/aws/sagemaker/Endpoints") == 1)
    assert cloud.statistic("ConcurrentRequestsPerModel", "Maximum") is None


def test_errors_of_the_container_are_counted(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A container's 400 and 500 count as model errors, and SageMaker's own rejections do not."""
    cloud.put_model("bad.tar.gz", behaviour="invoke_status=400")
    cloud.put_model("broken.tar.gz", behaviour="invoke_status=500")
    cloud.deploy()
    for target in ("bad.tar.gz", "broken.tar.gz", None):
        with pytest.raises(ClientError):
            cloud.invoke(target)
    wait(lambda: cloud.statistic("InvocationModelErrors", "Sum") == 2)
    assert cloud.statistic("Invocation4XXErrors", "Sum") == 1
    assert cloud.statistic("Invocation5XXErrors", "Sum") == 1
    assert cloud.statistic("Invocations", "Sum") == 2


def test_loaded_models_are_counted(cloud: Cloud, wait: Callable[..., None]) -> None:
    """LoadedModelCount is the number of loaded models, also without calls."""
    for name in "ab":
        cloud.put_model(f"{name}.tar.gz", answer=name)
    cloud.deploy()
    wait(lambda: cloud.statistic("LoadedModelCount", "Maximum", namespace="/aws/sagemaker/Endpoints") == 0)
    cloud.invoke("a.tar.gz")
    cloud.invoke("b.tar.gz")
    wait(lambda: cloud.statistic("LoadedModelCount", "Maximum", namespace="/aws/sagemaker/Endpoints") == 2)


def test_log_lines_reach_the_file_and_cloudwatch(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A container's output is in its instance's file and in the endpoint's log group."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    cloud.invoke()
    (file,) = (cloud.state_dir / "logs" / "e").iterdir()
    stream = f"AllTraffic/{file.stem}"

    def lines() -> list[str]:
        if not cloud.logs.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]:
            return []
        if not cloud.logs.describe_log_streams(logGroupName=GROUP)["logStreams"]:
            return []
        events = cloud.logs.get_log_events(logGroupName=GROUP, logStreamName=stream)["events"]
        return [event["message"] for event in events]

    wait(lambda: any("a.tar.gz was loaded as" in line for line in lines()))
    assert lines() == file.read_text().splitlines()
    assert [line for line in lines() if " sagemaker " not in line] == ["listening", "loaded a.tar.gz"]
    assert "container started, process 4242" in lines()[1]


def test_metric_filters_make_metrics_of_log_lines(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A filter of the endpoint's log group counts the lines that match, with a dimension taken from the line."""
    cloud.logs.create_log_group(logGroupName=GROUP)
    transformation = {
        "metricName": "Loads",
        "metricNamespace": "LmiCohost/e",
        "metricValue": "1",
        "dimensions": {"Model": "$archive"},
    }
    cloud.logs.put_metric_filter(
        logGroupName=GROUP,
        filterName="f",
        filterPattern='[mark = "loaded", archive]',
        metricTransformations=[transformation],
    )
    for name in "ab":
        cloud.put_model(f"{name}.tar.gz", answer=name)
    cloud.deploy()
    for name in "ab":
        cloud.invoke(f"{name}.tar.gz")

    def loads(model: str) -> Any:
        return cloud.statistic("Loads", "Sum", namespace="LmiCohost/e", Model=model)

    wait(lambda: (loads("a.tar.gz"), loads("b.tar.gz")) == (1, 1))


def test_a_log_group_of_the_stack_is_used_and_its_removal_final(cloud: Cloud, wait: Callable[..., None]) -> None:
    """An existing log group is used, and a deleted one is not created again."""
    cloud.logs.create_log_group(logGroupName=GROUP)
    cloud.put_model("a.tar.gz", answer="a")
    cloud.put_model("b.tar.gz", answer="b")
    cloud.deploy()
    wait(lambda: cloud.logs.describe_log_streams(logGroupName=GROUP)["logStreams"])
    cloud.logs.delete_log_group(logGroupName=GROUP)
    cloud.invoke()
    cloud.run(cloud.service.publish())
    cloud.invoke("b.tar.gz")
    cloud.sagemaker.delete_endpoint(EndpointName="e")
    wait(lambda: not cloud.sagemaker.list_endpoints()["Endpoints"])
    cloud.run(cloud.service.publish())
    assert cloud.logs.describe_log_groups()["logGroups"] == []


def test_introspection_tells_instances_and_models(cloud: Cloud) -> None:
    """The introspection route has instances with process ids, and models with their calls."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy(count=2)
    cloud.invoke()
    cloud.invoke()
    (endpoint,) = httpx.get(f"{cloud.url}/_cohost/endpoints", trust_env=False, timeout=60).json()["endpoints"]
    assert (endpoint["name"], endpoint["status"], endpoint["config"]) == ("e", "InService", "config")
    instances = endpoint["variants"][0]["instances"]
    assert [instance["pid"] for instance in instances] == [4242, 4242]
    (model,) = [model for instance in instances for model in instance["models"]]
    assert (model["target"], model["loaded"], model["calls"]) == ("a.tar.gz", True, 2)


def test_faults_of_the_request_are_json_errors(cloud: Cloud) -> None:
    """Bodies that are no JSON object, and unknown targets, are answered in JSON, never with a 500."""
    url, target = cloud.url, {"x-amz-target": "SageMaker.ListModels"}
    for body in ("no json", "[1]"):
        answer = httpx.post(url, content=body, headers=target, trust_env=False, timeout=60)
        assert (answer.status_code, answer.json()["__type"]) == (400, "SerializationException")
    answer = httpx.post(url, content="{}", trust_env=False, timeout=60)
    assert (answer.status_code, answer.json()["__type"]) == (400, "UnknownOperationException")
    assert httpx.post(url, content="", headers=target, trust_env=False, timeout=60).json() == {"Models": []}
