"""The conversion of the catalog's deployment guardrails to the DeploymentConfig of a SageMaker endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import aws_sagemaker as sagemaker

from cohost.catalog.sections.lifecycle import size_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cohost.catalog.sections.lifecycle import Guardrails


_TYPES: Final[Mapping[str, str]] = {"all-at-once": "ALL_AT_ONCE", "canary": "CANARY", "linear": "LINEAR"}


def deployment_config(
    guardrails: Guardrails, alarm_names: Sequence[str]
) -> sagemaker.CfnEndpoint.DeploymentConfigProperty:
    """Return the endpoint's deployment configuration.

    Args:
        guardrails: the catalog's guardrails; their sizes fit their strategy.
        alarm_names: the alarms that roll an update back. Without alarms, only instances that fail to start do.
    """
    alarms = [sagemaker.CfnEndpoint.AlarmProperty(alarm_name=name) for name in alarm_names]
    rolling = guardrails.strategy == "rolling"
    return sagemaker.CfnEndpoint.DeploymentConfigProperty(
        auto_rollback_configuration=(
            sagemaker.CfnEndpoint.AutoRollbackConfigProperty(alarms=alarms) if alarms else None
        ),
        blue_green_update_policy=None if rolling else _blue_green(guardrails),
        rolling_update_policy=_rolling(guardrails) if rolling else None,
    )


def _blue_green(guardrails: Guardrails) -> sagemaker.CfnEndpoint.BlueGreenUpdatePolicyProperty:
    size = _size(guardrails)
    return sagemaker.CfnEndpoint.BlueGreenUpdatePolicyProperty(
        traffic_routing_configuration=sagemaker.CfnEndpoint.TrafficRoutingConfigProperty(
            type=_TYPES[guardrails.strategy],
            # If all calls move at once there are no steps, so no wait between steps is set.
            wait_interval_in_seconds=0 if size is None else guardrails.wait_interval_in_seconds,
            canary_size=size if guardrails.strategy == "canary" else None,
            linear_step_size=size if guardrails.strategy == "linear" else None,
        ),
        termination_wait_in_seconds=guardrails.termination_wait_in_seconds,
        maximum_execution_timeout_in_seconds=guardrails.maximum_execution_timeout_in_seconds,
    )


def _rolling(guardrails: Guardrails) -> sagemaker.CfnEndpoint.RollingUpdatePolicyProperty:
    size = _size(guardrails)
    if size is None:
        raise ValueError("maximum_batch_size is missing with strategy rolling")
    return sagemaker.CfnEndpoint.RollingUpdatePolicyProperty(
        maximum_batch_size=size,
        wait_interval_in_seconds=guardrails.wait_interval_in_seconds,
        maximum_execution_timeout_in_seconds=guardrails.maximum_execution_timeout_in_seconds,
    )


def _size(guardrails: Guardrails) -> sagemaker.CfnEndpoint.CapacitySizeProperty | None:
    if guardrails.size is None:
        return None
    kind, value = size_of(guardrails.size)
    return sagemaker.CfnEndpoint.CapacitySizeProperty(type=kind, value=value)
