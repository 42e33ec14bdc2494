"""Faults on request: the route, and their effects on endpoints."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fakes.faults import faulted

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process

OFF = {
    "throttled_calls": 0,
    "unavailable_calls": 0,
    "model_load_delay_s": 0,
    "container_start_delay_s": 0,
    "ping_interval_s": 0.05,
    "ping_failures": 3,
    "replacement_delay_s": 0,
}


def switch(cloud: Cloud, **wanted: Any) -> dict[str, Any]:
    """Set switches; the state of all."""
    answer = httpx.put(f"{cloud.url}/_cohost/faults", json=wanted, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text
    state: dict[str, Any] = answer.json()
    return state


def test_throttled_calls_are_counted_down(cloud: Cloud) -> None:
    """The requested number of calls gets ThrottlingException with status 400, and the next call is answered."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    assert switch(cloud, throttled_calls=2) == {**OFF, "throttled_calls": 2}
    for _ in range(2):
        with faulted("ThrottlingException", 400) as caught:
            cloud.invoke()
        assert caught.value.response["Error"]["Message"] is None
    assert cloud.invoke()["answer"] == "a"


def test_throttling_is_retried_by_the_sdk(cloud: Cloud) -> None:
    """A throttled call is retried by botocore and gets its answer."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    switch(cloud, throttled_calls=1)
    answer = cloud.retrying_runtime().invoke_endpoint(EndpointName="e", TargetModel="a.tar.gz", Body=b"{}")
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1


def test_unavailable_calls_are_typed(cloud: Cloud) -> None:
    """The requested number of calls gets ServiceUnavailable with status 503, after the throttled ones."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    switch(cloud, throttled_calls=1, unavailable_calls=1)
    with faulted("ThrottlingException", 400):
        cloud.invoke()
    with faulted("ServiceUnavailable", 503):
        cloud.invoke()
    assert cloud.invoke()["answer"] == "a"


def test_a_slower_load_can_pass_the_limit(make_cloud: Callable[..., Cloud]) -> None:
    """A load that is slowed down over the limit gives ModelNotReadyException, and then an answer."""
    cloud = make_cloud(load_wait_s=0.2)
    for name in ("a", "b"):
        cloud.put_model(f"{name}.tar.gz", answer=name)
    cloud.deploy()
    switch(cloud, model_load_delay_s=3600)
    with pytest.raises(cloud.runtime.exceptions.ModelNotReadyException) as caught:
        cloud.invoke()
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    switch(cloud, model_load_delay_s=0.5)
    started = time.monotonic()
    assert cloud.invoke_in_the_end("b.tar.gz") == "b"
    assert time.monotonic() - started >= 0.5


def test_a_slower_start_delays_a_copy(cloud: Cloud) -> None:
    """A slowed-down start delays a component's copy by this time."""
    cloud.deploy_components()
    switch(cloud, container_start_delay_s=0.5)
    started = time.monotonic()
    cloud.create_component()
    cloud.wait_component("InService")
    assert time.monotonic() - started >= 0.5


def test_faults_are_read_and_ended(cloud: Cloud) -> None:
    """GET returns the faults, DELETE ends them, and PUT keeps those that it leaves out."""
    switch(cloud, throttled_calls=3)
    state = switch(cloud, model_load_delay_s=1.5)
    assert state == {**OFF, "throttled_calls": 3, "model_load_delay_s": 1.5}
    url = f"{cloud.url}/_cohost/faults"
    assert httpx.get(url, trust_env=False, timeout=60).json() == state
    assert httpx.delete(url, trust_env=False, timeout=60).json() == OFF
    assert httpx.get(url, trust_env=False, timeout=60).json() == OFF


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"no json", "the body is not JSON"),
        (b"[1]", "not a JSON object"),
        (
            b'{"throttle": 1}',
            "throttle: no such switch; allowed: throttled_calls, unavailable_calls, model_load",
        ),
        (b'{"throttled_calls": 1.5}', "throttled_calls: 1.5 is none; allowed: a whole number of 0 or more; fix: "),
        (b'{"throttled_calls": true}', "throttled_calls: True is none"),
        (
            b'{"throttled_calls": 1, "model_load_delay_s": -1}',
            "model_load_delay_s: -1 is none; allowed: a number of",
        ),
        (b'{"model_load_delay_s": Infinity}', "model_load_delay_s: inf is none"),
        (b'{"model_load_delay_s": "1"}', "model_load_delay_s: '1' is none"),
        (b'{"ping_failures": 0}', "ping_failures: 0 is none; allowed: a whole number of 1 or more"),
        (b'{"ping_interval_s": 0}', "ping_interval_s: 0 is none; allowed: a number of seconds of 0.01 or more"),
    ],
)
def test_a_wrong_switch_is_named(cloud: Cloud, body: bytes, message: str) -> None:
    """A wrong name or value of a fault is rejected with the fix."""
    url = f"{cloud.url}/_cohost/faults"
    answer = httpx.put(url, content=body, trust_env=False, timeout=60)
    assert answer.status_code == 400
    assert message in answer.json()["message"]
    assert httpx.get(url, trust_env=False, timeout=60).json() == OFF


def strike(cloud: Cloud, endpoint: str = "e", model: str = "a", fault: str = "die") -> httpx.Response:
    """Ask for a worker fault."""
    wanted = {"worker_fault": {"endpoint": endpoint, "model": model, "fault": fault}}
    return httpx.put(f"{cloud.url}/_cohost/faults", json=wanted, trust_env=False, timeout=60)


@pytest.mark.parametrize("model", ["a", "a.tar.gz"])
def test_a_worker_fault_reaches_the_container_that_has_the_model(cloud: Cloud, model: str) -> None:
    """A fault is caused on the instance that has loaded the model, and the answer names this instance."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy(count=2)
    port = cloud.invoke()["port"]
    answer = strike(cloud, model=model, fault="hang")
    (holder,) = [instance for instance in cloud.instances() if instance["models"]]
    told = {"endpoint": "e", "model": "a.tar.gz", "fault": "hang", "id": holder["id"]}
    assert answer.json() == {**OFF, "worker_fault": told}
    asked = {one.url.rpartition(":")[2]: one.worker_faults for one in cloud.factory.started}
    assert asked.pop(port) == [{"model": holder["models"][0]["model_id"], "fault": "hang"}]
    assert list(asked.values()) == [[]]


def test_a_worker_fault_of_a_component_names_the_catalogs_model(cloud: Cloud) -> None:
    """A fault can name a component's model by its name in the catalog."""
    cloud.deploy_components()
    cloud.put_model("all.tar.gz", **{"mini/answer": "mini", "x-l.v/answer": "large"})
    cloud.create_component()
    cloud.wait_component("InService")
    assert strike(cloud, model="x-l.v", fault="lose_device").json()["worker_fault"]["model"] == "x_l_v"
    assert cloud.factory.started[0].worker_faults == [{"model": "x_l_v", "fault": "lose_device"}]


def test_a_wrong_worker_fault_is_named_and_nothing_is_set(cloud: Cloud) -> None:
    """A wrong endpoint, model or fault is rejected with allowed values and fix, and sets nothing."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    assert strike(cloud).json()["message"] == (
        "worker_fault.model: 'a' is not loaded on endpoint e; allowed: none, since no model is loaded; fix: call the "
        "model first"
    )
    cloud.invoke()
    for wanted, message in (
        ({"endpoint": "x"}, "worker_fault.endpoint: 'x' is no endpoint that runs; allowed: e; fix: name one that runs"),
        ({"model": "b"}, "worker_fault.model: 'b' is not loaded on endpoint e; allowed: a.tar.gz; fix: call the model"),
        ({"fault": "burn"}, "worker_fault.fault: 'burn' is no fault; allowed: die, hang, lose_device; fix: name one"),
    ):
        answer = strike(cloud, **wanted)
        assert answer.status_code == 400
        assert message in answer.json()["message"]
    body = {"throttled_calls": 1, "worker_fault": {"endpoint": "e"}}
    answer = httpx.put(f"{cloud.url}/_cohost/faults", json=body, trust_env=False, timeout=60)
    assert "allowed: an object of the texts endpoint, model, fault; fix: send one" in answer.json()["message"]
    assert cloud.factory.started[0].worker_faults == []
    assert cloud.invoke()["answer"] == "a"


def test_a_container_that_refuses_a_worker_fault_is_quoted(cloud: Cloud) -> None:
    """A container's rejection of a fault is passed on to the caller."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    cloud.invoke()
    cloud.factory.started[0].models.clear()
    answer = strike(cloud)
    assert answer.status_code == 400
    assert "answered 404" in answer.json()["message"]
    assert "no worker of " in answer.json()["message"]
