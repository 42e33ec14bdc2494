"""The deployment guardrails of SageMaker: calls move to new instances in steps, and back if an alarm fires.

AWS: SageMaker developer guide, "Deployment guardrails for updating models in production", and API reference,
DeploymentConfig. The old and the new fleet exist until the end of an update, also in a rolling deployment: the batches
of a rolling deployment differ from linear steps only in the number of instances, which callers cannot observe.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from local_aws.kit.errors import ValidationException
from local_aws.sagemaker.errors import DeploymentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local_aws.kit.clients import ServiceClients
    from local_aws.kit.clock import Clock
    from local_aws.sagemaker.hosting.endpoint_snapshot import VariantPlan
    from local_aws.sagemaker.hosting.production_variants import Fleet


LOOK_SECONDS: Final = 0.2
# The largest step, in percent of the fleet's instances (SageMaker developer guide, "Use canary traffic shifting" and
# the pages on linear and rolling deployments).
_MOST_PERCENT: Final = 50
_WHOLE: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class Guardrails:
    """The steps of an update: the new fleet's share of the calls (0 to 1) in each, pauses in seconds, and alarms."""

    shares: Sequence[float]
    wait_s: float
    termination_wait_s: float
    alarms: Sequence[str]


class Shift:
    """The split of calls between two fleets: the new one gets the fraction `share`, evenly spaced among all calls."""

    def __init__(self, old: Fleet, new: Fleet) -> None:
        self._old = old
        self._new = new
        self._credit = 0.0
        self.share = 0.0

    def next(self) -> Fleet:
        """Choose the fleet that takes the next call."""
        self._credit += self.share
        # Floating-point sums of decimal shares may be slightly less than a whole number.
        if self._credit + 1e-9 >= _WHOLE:
            self._credit -= _WHOLE
            return self._new
        return self._old


def guardrails_of(definition: Mapping[str, Any] | None, plans: Sequence[VariantPlan]) -> Guardrails | None:
    """Read the DeploymentConfig of a request; return None if the request has none.

    Raises:
        ValidationException: the size of a step is missing, or is more than half of the instances.
    """
    if not definition:
        return None
    alarms = [one["AlarmName"] for one in (definition.get("AutoRollbackConfiguration") or {}).get("Alarms", [])]
    instances = sum(plan.instance_count for plan in plans)
    if rolling := definition.get("RollingUpdatePolicy"):
        step = _share("MaximumBatchSize", rolling.get("MaximumBatchSize"), instances)
        wait, end = rolling["WaitIntervalInSeconds"], 0
        return Guardrails(shares=_steps(step), wait_s=wait, termination_wait_s=end, alarms=alarms)
    policy = definition.get("BlueGreenUpdatePolicy") or {}
    routing = policy.get("TrafficRoutingConfiguration") or {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
    return Guardrails(
        shares=_shares(routing, instances),
        wait_s=routing["WaitIntervalInSeconds"],
        termination_wait_s=policy.get("TerminationWaitInSeconds", 0),
        alarms=alarms,
    )


async def shift_calls(
    shift: Shift, guardrails: Guardrails, role: str | None, clients: ServiceClients, clock: Clock
) -> None:
    """Move calls to the new fleet step by step, and watch the alarms until the old fleet may end.

    `role` is the execution role, with whose rights the alarms are read (SageMaker developer guide, "Auto-Rollback
    Configuration and Monitoring"). What AWS does if the role may not read the alarms is not known; in the emulator the
    deployment fails.

    Raises:
        DeploymentError: an alarm went off, or cannot be read; the caller must move all calls back to the old fleet.
    """
    for share in guardrails.shares:
        shift.share = share
        last = share == guardrails.shares[-1]
        seconds = guardrails.termination_wait_s if last else guardrails.wait_s
        await _watch(seconds, partial(_gone_off, clients, guardrails.alarms, role), clients, clock)


async def _watch(seconds: float, look: Callable[[], list[str]], clients: ServiceClients, clock: Clock) -> None:
    end = clock.now() + seconds
    while True:
        if gone_off := await clients.run(look):
            raise DeploymentError(
                f"The deployment was rolled back because of CloudWatch alarms in state ALARM: {', '.join(gone_off)}"
            )
        left = clock.real(end - clock.now())
        if left <= 0:
            return
        await asyncio.sleep(min(left, LOOK_SECONDS))


def _gone_off(clients: ServiceClients, alarms: Sequence[str], role: str | None) -> list[str]:
    if not alarms:
        return []
    try:
        # moto ignores the parameter StateValue if names are given, so the states are compared here.
        found = clients.cloudwatch(role).describe_alarms(AlarmNames=list(alarms))
    except ClientError as error:
        raise DeploymentError(f"The alarms of the deployment cannot be read: {error}") from error
    return [alarm["AlarmName"] for alarm in found["MetricAlarms"] if alarm["StateValue"] == "ALARM"]


def _shares(routing: Mapping[str, Any], instances: int) -> list[float]:
    match routing["Type"]:
        case "CANARY":
            return [_share("CanarySize", routing.get("CanarySize"), instances), _WHOLE]
        case "LINEAR":
            return _steps(_share("LinearStepSize", routing.get("LinearStepSize"), instances))
    return [_WHOLE]


def _steps(step: float) -> list[float]:
    count = math.ceil(round(_WHOLE / step, 6))
    return [min(number * step, _WHOLE) for number in range(1, count)] + [_WHOLE]


def _share(name: str, size: Mapping[str, Any] | None, instances: int) -> float:
    if size is None:
        raise ValidationException(f"{name} must be specified for this kind of deployment")
    percent = size["Value"] if size["Type"] == "CAPACITY_PERCENT" else 100 * size["Value"] / instances
    if percent > _MOST_PERCENT:
        raise ValidationException(
            f"{name} {size['Value']} {size['Type']} is more than {_MOST_PERCENT} percent of {instances} instances"
        )
    # A share smaller than an instance is one instance.
    return float(max(percent / 100, 1 / instances))
