"""Updates with guardrails: calls move in steps, and an alarm moves them back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process

LONG = 3600
WATCHED = {"Alarms": [{"AlarmName": "errors"}]}


def blue_green(kind: str, *, wait: int = 0, end: int = 0, **sizes: Any) -> dict[str, Any]:
    """A DeploymentConfig that watches the alarm `errors`."""
    routing = {"Type": kind, "WaitIntervalInSeconds": wait, **sizes}
    policy = {"TrafficRoutingConfiguration": routing, "TerminationWaitInSeconds": end}
    return {"BlueGreenUpdatePolicy": policy, "AutoRollbackConfiguration": WATCHED}


def half() -> dict[str, Any]:
    """Return one of two instances."""
    return {"Type": "INSTANCE_COUNT", "Value": 1}


def set_alarm(cloud: Cloud, state: str) -> None:
    """Put the alarm `errors` into a state."""
    cloud.cloudwatch.put_metric_alarm(
        AlarmName="errors",
        Namespace="n",
        MetricName="m",
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanThreshold",
    )
    cloud.cloudwatch.set_alarm_state(AlarmName="errors", StateValue=state, StateReason="test")


@pytest.fixture
def two(cloud: Cloud) -> Cloud:
    """Endpoint `e` of two instances that answer "old", and a configuration `config-2` whose instances answer "new"."""
    cloud.put_model("a.tar.gz", answer="old")
    cloud.put_model("a.tar.gz", prefix="q/", answer="new")
    cloud.deploy(count=2)
    cloud.create_model("model-2", ModelDataUrl="s3://models/q/")
    cloud.create_config("config-2", model="model-2", count=2)
    set_alarm(cloud, "OK")
    return cloud


def update(cloud: Cloud, deployment: dict[str, Any]) -> None:
    """Move the endpoint to `config-2`."""
    cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config-2", DeploymentConfig=deployment)


def answers(cloud: Cloud, calls: int = 10) -> Counter[str]:
    """Return the containers that answer this number of calls."""
    return Counter(cloud.invoke()["answer"] for _ in range(calls))


def test_canary_takes_its_share_and_an_alarm_takes_it_back(two: Cloud, wait: Callable[..., None]) -> None:
    """The canary gets half of the calls; an alarm ends it and restores the endpoint with the reason."""
    update(two, blue_green("CANARY", wait=LONG, CanarySize=half()))
    wait(lambda: "new" in answers(two, 2))
    assert two.status()["EndpointStatus"] == "Updating"
    assert answers(two) == {"old": 5, "new": 5}
    set_alarm(two, "ALARM")
    described = two.wait_status("InService")
    assert described["EndpointConfigName"] == "config"
    assert "rolled back because of CloudWatch alarms in state ALARM: errors" in described["FailureReason"]
    assert answers(two) == {"old": 10}
    wait(lambda: len(two.factory.running) == 2)


def test_linear_steps_end_with_the_new_configuration(two: Cloud) -> None:
    """Without an alarm all linear steps pass, and the description has the last deployment configuration."""
    deployment = blue_green("LINEAR", wait=1, end=1, LinearStepSize={"Type": "CAPACITY_PERCENT", "Value": 50})
    update(two, deployment)
    described = two.wait_status("InService")
    assert described["EndpointConfigName"] == "config-2"
    assert described["LastDeploymentConfig"] == deployment
    assert "FailureReason" not in described
    assert answers(two) == {"new": 10}


def test_all_at_once_can_be_taken_back_while_the_old_instances_wait(two: Cloud, wait: Callable[..., None]) -> None:
    """After an all-at-once shift an alarm during the termination wait returns calls to the old instances."""
    update(two, blue_green("ALL_AT_ONCE", end=LONG))
    wait(lambda: answers(two, 2) == {"new": 2})
    set_alarm(two, "ALARM")
    assert two.wait_status("InService")["EndpointConfigName"] == "config"
    assert answers(two) == {"old": 10}


def test_alarm_that_is_on_already_lets_nothing_move(two: Cloud) -> None:
    """An update with an alarm in ALARM fails at once."""
    set_alarm(two, "ALARM")
    update(two, blue_green("ALL_AT_ONCE", end=LONG))
    assert two.wait_status("InService")["EndpointConfigName"] == "config"


def test_rolling_deployment_goes_batch_by_batch(two: Cloud, wait: Callable[..., None]) -> None:
    """A rolling deployment moves one of two instances first."""
    policy = {"MaximumBatchSize": half(), "WaitIntervalInSeconds": LONG}
    update(two, {"RollingUpdatePolicy": policy, "AutoRollbackConfiguration": WATCHED})
    wait(lambda: answers(two, 2) == {"old": 1, "new": 1})
    set_alarm(two, "ALARM")
    two.wait_status("InService")


def test_later_update_can_keep_the_guardrails(two: Cloud, wait: Callable[..., None]) -> None:
    """RetainDeploymentConfig uses the guardrails of the previous update."""
    update(two, blue_green("CANARY", wait=1, CanarySize=half()))
    two.wait_status("InService")
    two.create_config("config-3", count=2)
    set_alarm(two, "ALARM")
    two.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config-3", RetainDeploymentConfig=True)
    wait(lambda: "FailureReason" in two.status())
    assert two.wait_status("InService")["EndpointConfigName"] == "config-2"


@pytest.mark.parametrize(
    ("deployment", "about"),
    [
        (blue_green("CANARY"), "CanarySize"),
        (blue_green("CANARY", CanarySize={"Type": "INSTANCE_COUNT", "Value": 2}), "percent"),
        (blue_green("LINEAR", LinearStepSize={"Type": "CAPACITY_PERCENT", "Value": 60}), "percent"),
    ],
)
def test_step_of_more_than_half_is_refused(two: Cloud, deployment: dict[str, Any], about: str) -> None:
    """Sizes are checked before anything moves, and the endpoint stays in service."""
    with faulted("ValidationException", 400, about):
        update(two, deployment)
    assert two.status()["EndpointStatus"] == "InService"
