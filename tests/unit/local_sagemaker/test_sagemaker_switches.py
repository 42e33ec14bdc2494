"""Faults on demand: the route, and what endpoints then do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_cloud import Cloud

OFF = {"throttled_calls": 0, "unavailable_calls": 0, "model_load_delay_s": 0, "container_start_delay_s": 0}


def switch(cloud: Cloud, **wanted: Any) -> dict[str, Any]:
    """Set switches; the state of all."""
    answer = httpx.put(f"{cloud.url}/_cohost/faults", json=wanted, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text
    state: dict[str, Any] = answer.json()
    return state


def test_throttled_calls_are_counted_down(cloud: Cloud) -> None:
    """So many calls get ThrottlingException with status 400 and no message, and the next one is answered."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    assert switch(cloud, throttled_calls=2) == {**OFF, "throttled_calls": 2}
    for _ in range(2):
        with pytest.raises(ClientError, match=r"ThrottlingException.*None") as caught:
            cloud.invoke()
        assert caught.value.response["Error"]["Code"] == "ThrottlingException"
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert cloud.invoke()["answer"] == "a"


def test_throttling_is_retried_by_the_sdk(cloud: Cloud) -> None:
    """Botocore takes the error for throttling: a client with retries gets its answer."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    switch(cloud, throttled_calls=1)
    answer = cloud.retrying_runtime().invoke_endpoint(EndpointName="e", TargetModel="a.tar.gz", Body=b"{}")
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1


def test_unavailable_calls_are_typed(cloud: Cloud) -> None:
    """So many calls get ServiceUnavailable with status 503, after the throttled ones."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    switch(cloud, throttled_calls=1, unavailable_calls=1)
    with pytest.raises(ClientError, match="ThrottlingException"):
        cloud.invoke()
    with pytest.raises(cloud.runtime.exceptions.ServiceUnavailable) as caught:
        cloud.invoke()
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert cloud.invoke()["answer"] == "a"


def test_a_slower_load_can_pass_the_limit(make_cloud: Callable[..., Cloud]) -> None:
    """A load that is made slower than the wait is ModelNotReadyException, and an answer once it is over."""
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
    """A component's copy takes so much longer to come into service."""
    cloud.deploy_components()
    switch(cloud, container_start_delay_s=0.5)
    started = time.monotonic()
    cloud.create_component()
    cloud.wait_component("InService")
    assert time.monotonic() - started >= 0.5


def test_faults_are_read_and_ended(cloud: Cloud) -> None:
    """GET tells the state, DELETE ends all faults; what a PUT leaves out stays."""
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
        (b'{"throttle": 1}', "throttle: no such switch; there are throttled_calls, unavailable_calls, model_load_d"),
        (b'{"throttled_calls": 1.5}', "throttled_calls: 1.5 is not a whole number of 0 or more"),
        (b'{"throttled_calls": true}', "throttled_calls: True is not a whole number"),
        (b'{"throttled_calls": 1, "model_load_delay_s": -1}', "model_load_delay_s: -1 is not a number of seconds"),
        (b'{"model_load_delay_s": Infinity}', "model_load_delay_s: inf is not a number of seconds"),
        (b'{"model_load_delay_s": "1"}', "model_load_delay_s: '1' is not a number of seconds"),
    ],
)
def test_a_wrong_switch_is_named(cloud: Cloud, body: bytes, message: str) -> None:
    """A wrong name or value is refused with the fix, and changes nothing."""
    url = f"{cloud.url}/_cohost/faults"
    answer = httpx.put(url, content=body, trust_env=False, timeout=60)
    assert answer.status_code == 400
    assert message in answer.json()["message"]
    assert httpx.get(url, trust_env=False, timeout=60).json() == OFF
