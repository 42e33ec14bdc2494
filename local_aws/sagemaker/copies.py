"""The copies of an inference component that serve on one variant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_aws.sagemaker.concurrency import ConcurrencyGauge
from local_aws.sagemaker.dispatch import invoke_one
from local_aws.sagemaker.faults import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from local_aws.sagemaker.host import Host
    from local_aws.sagemaker.placement import Machine, Resources
    from local_aws.sagemaker.plan import ContainerPlan
    from local_aws.sagemaker.replica import Replica


_MINUTE_S = 60


@dataclass(frozen=True, kw_only=True)
class ComponentPlan:
    """What one copy of a component runs, and what it takes of an instance."""

    name: str
    container: ContainerPlan
    resources: Resources


@dataclass(frozen=True, kw_only=True, eq=False)
class Copy:
    """One copy: its container, and the instance that it is placed on."""

    plan: ComponentPlan
    machine: Machine
    replica: Replica


class Copies:
    """The copies in service; calls go to the one with the fewest running."""

    def __init__(self, component_name: str, host: Host) -> None:
        self.component_name = component_name
        self.in_service: list[Copy] = []
        self.meter = host.metrics.component_meter(component_name)
        interval_s = host.settings.concurrency_interval_s
        self._gauge = ConcurrencyGauge(self.meter, "ConcurrentRequestsPerCopy", interval_s, host.clock)
        self._clock = host.clock
        self._called = 0.0

    def check_capacity(self) -> None:
        """Record a call that finds no copy, which is what wakes a component up.

        Raises:
            ValidationError: there is no copy; the text is quoted in AWS's blog post on scaling down to zero.
        """
        if not self.in_service:
            self.meter.count("NoCapacityInvocationFailures")
            raise ValidationError(
                "Inference Component has no capacity to process this request. ApplicationAutoScaling may be "
                "in-progress (if configured) or try to increase the capacity by invoking "
                "UpdateInferenceComponentRuntimeConfig API."
            )

    async def invoke(self, target: str | None, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """A container's answer; raises as `invoke_one` does, and as `check_capacity`."""
        self.check_capacity()
        self._called = self._clock.now()
        self.meter.count("InvocationsPerCopy", 1 / len(self.in_service))
        replicas = [copy.replica for copy in self.in_service]
        with self._gauge.call():
            whose = f"inference component {self.component_name}"
            return await invoke_one(replicas, whose, target=target, body=body, headers=headers)

    def report(self) -> None:
        """Record the metrics that no call records.

        An idle minute counts as none a copy. That the service says so too is inferred: its own recipe scales to zero by
        this metric, which needs a value.
        """
        now = self._clock.now()
        if self.in_service and now >= self._called + _MINUTE_S:
            self._called = now
            self.meter.count("InvocationsPerCopy", 0)
        self._gauge.report(len(self.in_service))
