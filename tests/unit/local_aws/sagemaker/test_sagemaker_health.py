"""Containers that fail pings or die: the calls meanwhile, the errors, and the replacement."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fakes.faults import faulted

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.fake_container import FakeContainer
    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process

INSTANCE_METRICS = "/aws/sagemaker/Endpoints"
FAILED = '{\n  "mini": {\n    "status": "FAILED"\n  }\n}\n'
LONG_S = 3600
NO_RESPONSE = "Amazon SageMaker could not get a response from the e endpoint."


def switch(cloud: Cloud, **wanted: Any) -> None:
    """Set switches."""
    httpx.put(f"{cloud.url}/_cohost/faults", json=wanted, trust_env=False, timeout=60).raise_for_status()


def fail_pings(container: FakeContainer) -> None:
    """Let a container answer pings as DJL Serving does with a model that has failed."""
    container.ping_body, container.ping_status = FAILED, 500


def log_of(cloud: Cloud) -> str:
    """Read the first instance's log."""
    return next((cloud.state_dir / "logs" / "e").iterdir()).read_text()


def copy_of(cloud: Cloud) -> dict[str, Any]:
    """The first copy on the first instance, from the introspection route."""
    found: dict[str, Any] = cloud.instances()[0]["copies"][0]
    return found


def test_pings_have_to_fail_in_a_row(cloud: Cloud, wait: Callable[..., None]) -> None:
    """Fewer failed pings in a row than the limit have no effect."""
    switch(cloud, ping_failures=1000)
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    container = cloud.factory.started[0]
    fail_pings(container)
    wait(lambda: "/ping failed, 3 in a row" in log_of(cloud))
    assert cloud.invoke()["answer"] == "a"
    container.ping_status = 200
    seen = container.pings
    wait(lambda: container.pings >= seen + 2)
    fail_pings(container)
    wait(lambda: log_of(cloud).count("/ping failed, 2 in a row") == 2)
    assert log_of(cloud).count("/ping failed, 1 in a row") == 2


def take_out_of_service(cloud: Cloud, wait: Callable[..., None]) -> None:
    """Answer one call, then fail the pings of the only instance and reject a call."""
    switch(cloud, replacement_delay_s=LONG_S)
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    cloud.invoke()
    fail_pings(cloud.factory.started[0])
    wait(lambda: not cloud.instances()[0]["ready"])
    with faulted("ServiceUnavailable", 503):
        cloud.invoke()


def test_the_only_instance_is_down_while_it_is_out_of_service(cloud: Cloud, wait: Callable[..., None]) -> None:
    """Calls get 503 while the only instance is out of service, and its log has the ping's answer."""
    take_out_of_service(cloud, wait)
    assert (len(cloud.factory.started), len(cloud.factory.running)) == (1, 1)
    assert cloud.status()["EndpointStatus"] == "InService"
    assert (
        'out of service, no call comes here: /ping failed 3 times in a row, the last time with 500 { "mini": { '
        '"status": "FAILED" } }; another container starts in 3600 s'
    ) in log_of(cloud)


def test_a_call_that_finds_no_instance_is_no_answer_of_a_model(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A call without a ready instance counts as a call, but neither as 5XX nor as an error of the model."""
    take_out_of_service(cloud, wait)
    wait(lambda: cloud.statistic("InvocationModelErrors", "SampleCount") == 2)
    assert cloud.statistic("Invocations", "Sum") == 2
    assert cloud.statistic("InvocationModelErrors", "Sum") == 0
    assert cloud.statistic("Invocation5XXErrors", "Sum") == 0


def test_a_replaced_container_has_no_model(cloud: Cloud, wait: Callable[..., None]) -> None:
    """After a replacement no model is loaded until its next call, which fetches it again."""
    for name in "ab":
        cloud.put_model(f"{name}.tar.gz", answer=name)
    cloud.deploy()
    for name in "ab":
        cloud.invoke(f"{name}.tar.gz")
    first = cloud.factory.started[0]
    wait(lambda: cloud.statistic("LoadedModelCount", "Maximum", namespace=INSTANCE_METRICS) == 2)
    fail_pings(first)
    wait(lambda: cloud.instances()[0]["restarts"] == 1)
    assert not first.alive
    assert cloud.instances()[0]["models"] == []

    def values(kind: str) -> float:
        return float(cloud.statistic("LoadedModelCount", kind, namespace=INSTANCE_METRICS))

    # Values of 0, 1 and 2, and 0 again: at least twice nothing was loaded.
    wait(lambda: values("SampleCount") >= 4)
    assert values("Minimum") == 0
    assert cloud.invoke_in_the_end("a.tar.gz") == "a"
    assert len(cloud.factory.started[1].loads) == 1
    wait(lambda: cloud.statistic("ModelDownloadingTime", "SampleCount") == 3)


def test_calls_in_flight_may_end_until_the_container_does(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A call that was sent before its container went out of service is answered."""
    switch(cloud, replacement_delay_s=LONG_S)
    cloud.put_model("a.tar.gz", answer="a", behaviour="invoke=held")
    cloud.deploy()
    cloud.factory.gate.shut()
    answers: list[dict[str, Any]] = []
    caller = threading.Thread(target=lambda: answers.append(cloud.invoke()))
    caller.start()
    wait(lambda: cloud.instances()[0]["in_flight"] == 1)
    fail_pings(cloud.factory.started[0])
    wait(lambda: not cloud.instances()[0]["ready"])
    cloud.factory.gate.open()
    caller.join()
    assert answers[0]["answer"] == "a"


def test_calls_in_flight_end_with_their_container(cloud: Cloud, wait: Callable[..., None]) -> None:
    """An unanswered call of a replaced container is a ModelError of status 0 with SageMaker's text."""
    cloud.put_model("a.tar.gz", answer="a", behaviour="invoke=held")
    cloud.deploy()
    cloud.factory.gate.shut()
    faults: list[Any] = []

    def call() -> None:
        with pytest.raises(cloud.runtime.exceptions.ModelError) as caught:
            cloud.invoke()
        faults.append(caught.value.response)

    caller = threading.Thread(target=call)
    caller.start()
    wait(lambda: cloud.instances()[0]["in_flight"] == 1)
    fail_pings(cloud.factory.started[0])
    caller.join()
    assert faults[0]["OriginalStatusCode"] == 0
    assert faults[0]["OriginalMessage"].startswith(NO_RESPONSE)
    assert "the container ends with 1 calls in flight" in log_of(cloud)
    wait(lambda: cloud.instances()[0]["ready"])


def test_other_instances_serve_meanwhile(cloud: Cloud, wait: Callable[..., None]) -> None:
    """With two instances a model moves to the one in service, and no call fails."""
    switch(cloud, replacement_delay_s=LONG_S)
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy(count=2)
    port = cloud.invoke()["port"]
    (holder,) = [container for container in cloud.factory.started if container.url.endswith(port)]
    fail_pings(holder)
    wait(lambda: sorted(instance["ready"] for instance in cloud.instances()) == [False, True])
    assert {cloud.invoke()["port"] for _ in range(5)} == {
        container.url.rpartition(":")[2] for container in cloud.factory.started if container is not holder
    }


def test_a_dead_container_is_replaced_after_the_delay_too(cloud: Cloud, wait: Callable[..., None]) -> None:
    """The models of a dead container are gone at once, and calls get 503 until another container runs."""
    switch(cloud, replacement_delay_s=LONG_S)
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    cloud.invoke()
    cloud.run(cloud.factory.started[0].die())
    wait(lambda: cloud.instances()[0]["pid"] is None)
    assert cloud.instances()[0]["models"] == []
    with pytest.raises(cloud.runtime.exceptions.ServiceUnavailable):
        cloud.invoke()
    assert len(cloud.factory.started) == 1
    assert "no call comes here: the container's process has ended" in log_of(cloud)


def test_a_copy_goes_out_of_service_and_is_replaced(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A component's copy with failing pings gives 503 until it is replaced."""
    switch(cloud, replacement_delay_s=LONG_S)
    cloud.serve_component()
    fail_pings(cloud.factory.started[0])
    wait(lambda: not copy_of(cloud)["ready"])
    with faulted("ServiceUnavailable", 503, "inference component c"):
        cloud.call_component()
    assert cloud.component()["InferenceComponentStatus"] == "InService"
    switch(cloud, replacement_delay_s=0)
    cloud.scale_component(2)
    fail_pings(cloud.factory.started[1])
    wait(lambda: sorted(copy["restarts"] for one in cloud.instances() for copy in one["copies"]) == [0, 1])
    wait(lambda: any(copy["ready"] for one in cloud.instances() for copy in one["copies"]))
    assert cloud.call_component("nli")["answer"] == "nli"


def test_a_ping_has_two_seconds(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A ping without an answer within SageMaker's two seconds has failed, and the log says so."""
    switch(cloud, ping_failures=1, replacement_delay_s=LONG_S)
    cloud.deploy()
    cloud.factory.started[0].silent = True
    wait(lambda: not cloud.instances()[0]["ready"])
    assert "/ping failed, 1 in a row: no answer within 2 s" in log_of(cloud)
