"""Deployment guardrails in the template: SageMaker's settings for the next update."""

from __future__ import annotations

from typing import Any

from synthesis import make_catalog, make_stack, only, resources, template_of, waits_for

from cohost.catalog.models import Catalog


def synthesised(instances: int = 2, **deployment: Any) -> dict[str, Any]:
    """The template of a catalog with `deployment`, under all alarms."""
    catalog = make_catalog(endpoint={"initial_instance_count": instances})
    stated = catalog.model_dump(by_alias=True, exclude_unset=True)
    return template_of(make_stack(Catalog.model_validate({**stated, "monitoring": {}, "deployment": deployment})))


def config_of(template: dict[str, Any]) -> dict[str, Any]:
    """The endpoint's DeploymentConfig."""
    found: dict[str, Any] = only(template, "AWS::SageMaker::Endpoint")[1]["Properties"]["DeploymentConfig"]
    return found


def test_no_guardrails_unless_the_catalog_asks(product: dict[str, Any]) -> None:
    """A catalog without `deployment` leaves out DeploymentConfig, so SageMaker updates blue/green and all at once."""
    assert "DeploymentConfig" not in only(product, "AWS::SageMaker::Endpoint")[1]["Properties"]


def test_all_at_once_bakes_under_the_stacks_alarms() -> None:
    """After an all-at-once shift old instances wait, and alarms for errors and latency roll back."""
    template = synthesised(instances=1)
    config = config_of(template)
    assert config["BlueGreenUpdatePolicy"] == {
        "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0},
        "TerminationWaitInSeconds": 300,
    }
    watched = {one["AlarmName"]["Ref"] for one in config["AutoRollbackConfiguration"]["Alarms"]}
    metrics = {resources(template, "AWS::CloudWatch::Alarm")[name]["Properties"]["MetricName"] for name in watched}
    assert metrics == {"Invocation5XXErrors", "InvocationModelErrors", "ModelLatency"}


def test_alarms_are_there_before_the_endpoint_is_updated() -> None:
    """The alarms are updated before the endpoint, without a circular dependency."""
    template = synthesised(instances=1)
    endpoint, _ = only(template, "AWS::SageMaker::Endpoint")
    for one in config_of(template)["AutoRollbackConfiguration"]["Alarms"]:
        assert waits_for(template, endpoint, one["AlarmName"]["Ref"])


def test_canary_linear_and_rolling() -> None:
    """Canary, linear and rolling settings are written with SageMaker's names."""
    canary = synthesised(strategy="canary", canary_size=1, wait_interval_in_seconds=600)
    assert config_of(canary)["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"] == {
        "Type": "CANARY",
        "CanarySize": {"Type": "INSTANCE_COUNT", "Value": 1},
        "WaitIntervalInSeconds": 600,
    }
    linear = synthesised(strategy="linear", linear_step_size="25%", maximum_execution_timeout_in_seconds=3600)
    assert config_of(linear)["BlueGreenUpdatePolicy"] == {
        "TrafficRoutingConfiguration": {
            "Type": "LINEAR",
            "LinearStepSize": {"Type": "CAPACITY_PERCENT", "Value": 25},
            "WaitIntervalInSeconds": 300,
        },
        "TerminationWaitInSeconds": 300,
        "MaximumExecutionTimeoutInSeconds": 3600,
    }
    rolling = config_of(synthesised(strategy="rolling", maximum_batch_size="50%"))
    assert "BlueGreenUpdatePolicy" not in rolling
    assert rolling["RollingUpdatePolicy"] == {
        "MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 50},
        "WaitIntervalInSeconds": 300,
    }


def test_other_alarms_or_none_can_take_back() -> None:
    """Own alarms are used by name; with `false` only failed instances cause a rollback."""
    named = config_of(synthesised(rollback_alarms=["errors-of-the-frontend"]))
    assert named["AutoRollbackConfiguration"] == {"Alarms": [{"AlarmName": "errors-of-the-frontend"}]}
    assert "AutoRollbackConfiguration" not in config_of(synthesised(rollback_alarms=False))
