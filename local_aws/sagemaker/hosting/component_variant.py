"""A production variant made of inference components: instances that scale, and component copies placed on them.

With ManagedInstanceScaling the number of instances follows the number of copies, from MinInstanceCount to
MaxInstanceCount, and an instance without copies ends after some time. Without ManagedInstanceScaling the number of
instances is fixed. In the emulator an instance is only a record; each copy is a process.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from local_aws.sagemaker.errors import DeploymentError, ResourceLimitExceeded, no_component_capacity
from local_aws.sagemaker.hosting.endpoint_snapshot import model_memory_mb
from local_aws.sagemaker.hosting.placement import NO_ROOM, Instance, Placement, schedulable
from local_aws.sagemaker.hosting.replicas import Replica, all_of, drain_and_stop, invoke_one
from local_aws.sagemaker.telemetry.metrics import ConcurrencyGauge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

    from local_aws.sagemaker.hosting.context import EndpointContext
    from local_aws.sagemaker.hosting.endpoint_snapshot import ContainerPlan, VariantPlan
    from local_aws.sagemaker.hosting.placement import Resources


_MINUTE_S = 60


@dataclass(frozen=True, kw_only=True)
class ComponentPlan:
    """The container that each copy of a component runs, and the resources that a copy reserves on an instance."""

    name: str
    container: ContainerPlan
    resources: Resources


@dataclass(frozen=True, kw_only=True, eq=False)
class ComponentCopy:
    """One copy of an inference component: its container, and the instance that the copy is placed on."""

    plan: ComponentPlan
    instance: Instance
    replica: Replica


class ComponentCopies:
    """The copies of one component that are in service; a call goes to the copy with the fewest calls in flight."""

    def __init__(self, component_name: str, context: EndpointContext) -> None:
        self.component_name = component_name
        self.in_service: list[ComponentCopy] = []
        self.meter = context.metrics.component_meter(component_name)
        interval_s = context.settings.concurrency_interval_s
        self._gauge = ConcurrencyGauge(self.meter, "ConcurrentRequestsPerCopy", interval_s, context.clock)
        self._clock = context.clock
        self._called = 0.0

    def check_capacity(self) -> None:
        """Check that a copy is in service; if none is, record the metric that triggers scaling up from zero.

        Raises:
            ValidationError: no copy is in service.
        """
        if not self.in_service:
            self.meter.count("NoCapacityInvocationFailures")
            raise no_component_capacity()

    async def invoke(self, target: str | None, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Pass a call to a copy and return its container's answer; raises as `invoke_one` and `check_capacity` do."""
        self.check_capacity()
        self._called = self._clock.now()
        self.meter.count("InvocationsPerCopy", 1 / len(self.in_service))
        replicas = [copy.replica for copy in self.in_service]
        with self._gauge.call():
            owner = f"inference component {self.component_name}"
            return await invoke_one(replicas, owner, target=target, body=body, headers=headers)

    def report(self) -> None:
        """Record the metrics that are due at intervals, without a call.

        An idle minute is recorded as zero InvocationsPerCopy. SageMaker does the same (inferred): AWS's own recipe
        scales to zero by InvocationsPerCopy, and so needs a value in idle minutes.
        """
        now = self._clock.now()
        if self.in_service and now >= self._called + _MINUTE_S:
            self._called = now
            self.meter.count("InvocationsPerCopy", 0)
        self._gauge.report(len(self.in_service))


class ComponentVariant:
    """One production variant, its instances, and the copies of every component on these instances."""

    def __init__(self, endpoint_name: str, plan: VariantPlan, context: EndpointContext) -> None:
        self.plan = plan
        self.weight = plan.weight
        self._endpoint_name = endpoint_name
        self._context = context
        self._copies: dict[str, ComponentCopies] = {}
        self.instances = [self._new_instance() for _ in range(plan.instance_count)]

    @property
    def instance_count(self) -> int:
        """The number of the variant's instances."""
        return len(self.instances)

    @property
    def placed(self) -> list[ComponentCopy]:
        """The copies of all components that are in service."""
        return [copy for copies in self._copies.values() for copy in copies.in_service]

    def copies(self, component_name: str) -> ComponentCopies:
        """Return the copies of a component; none of them is in service before the component's first `scale`."""
        if component_name not in self._copies:
            self._copies[component_name] = ComponentCopies(component_name, self._context)
        return self._copies[component_name]

    async def start(self) -> None:
        """Do nothing: only copies of components run, and a new variant has none."""

    async def stop(self) -> None:
        """Stop all copies at once, without waiting for running calls."""
        await asyncio.gather(*(copy.replica.stop() for copy in self.placed))

    async def drain_and_stop(self) -> None:
        """Stop all copies after their running calls have ended or `drain_limit_s` is over."""
        await drain_and_stop([copy.replica for copy in self.placed], self._context.settings.drain_limit_s)

    async def adopt(self, other: ComponentVariant) -> None:
        """Start the same copies as the other variant has; raises DeploymentError if a copy does not start."""
        for copies in other._copies.values():
            for copy in copies.in_service:
                await self._add(copy.plan, 1)

    async def scale(self, plan: ComponentPlan, count: int) -> None:
        """Start or stop copies until a component has `count`. On DeploymentError no copy is added or removed."""
        serving = self.copies(plan.name).in_service
        if count > len(serving):
            await self._add(plan, count - len(serving))
        # Stop copies on the instances with the fewest copies first: that empties instances.
        by_company = sorted(serving, key=lambda copy: copy.instance.copies, reverse=True)
        await self._remove(by_company[count:])

    async def roll(self, plan: ComponentPlan, *, batch: int, pause_s: float) -> None:
        """Replace the copies that do not run `plan`, `batch` at a time: new ones start, then the old ones stop.

        Raises:
            DeploymentError: a batch found no room or did not start; the batches before that one stay replaced.
        """
        outdated = [copy for copy in self.copies(plan.name).in_service if copy.plan is not plan]
        for start in range(0, len(outdated), batch):
            old = outdated[start : start + batch]
            await self._add(plan, len(old))
            await asyncio.sleep(pause_s)
            await self._remove(old)

    def forget(self, component_name: str) -> None:
        """Remove the record of a component that has no copies any more."""
        self._copies.pop(component_name, None)

    def report(self) -> None:
        """Record the metrics that are due at intervals; remove instances that were idle for `instance_idle_s`."""
        for copies in self._copies.values():
            copies.report()
        self._give_up_idle()

    async def _add(self, plan: ComponentPlan, count: int) -> None:
        added = self._place(plan, count)
        try:
            await all_of([copy.replica.start() for copy in added])
        except BaseException:
            await asyncio.gather(*(copy.replica.stop() for copy in added))
            self._vacate(added)
            raise
        self.copies(plan.name).in_service += added

    async def _remove(self, gone: Sequence[ComponentCopy]) -> None:
        for copy in gone:
            self.copies(copy.plan.name).in_service.remove(copy)
        try:
            await drain_and_stop([copy.replica for copy in gone], self._context.settings.drain_limit_s)
        finally:
            self._vacate(gone)

    def _place(self, plan: ComponentPlan, count: int) -> list[ComponentCopy]:
        """Reserve resources on instances for `count` copies; on DeploymentError nothing stays reserved."""
        placed: list[ComponentCopy] = []
        try:
            for _ in range(count):
                instance = self._instance_for(plan.resources)
                instance.take(plan.resources)
                placed.append(ComponentCopy(plan=plan, instance=instance, replica=self._new_replica(plan, instance)))
        except DeploymentError:
            self._vacate(placed)
            raise
        return placed

    def _instance_for(self, wanted: Resources) -> Instance:
        """Return the instance with fewest copies where `wanted` fits (AWS: PlacementStrategy SPREAD), or a new one."""
        roomy = [instance for instance in self.instances if instance.free.holds(wanted)]
        if roomy:
            return min(roomy, key=lambda instance: instance.copies)
        instance = self._new_instance()
        if self.plan.scaling is None or not instance.free.holds(wanted):
            raise DeploymentError(NO_ROOM)
        if len(self.instances) >= self.plan.scaling.maximum:
            raise DeploymentError(NO_ROOM)
        try:
            self._context.quotas.check([(self.plan.instance_type, 1)])
        except ResourceLimitExceeded as fault:
            raise DeploymentError(str(fault)) from fault
        self.instances.append(instance)
        return instance

    def _vacate(self, copies: Sequence[ComponentCopy]) -> None:
        for copy in copies:
            copy.instance.give_back(copy.plan.resources, self._context.clock.now())
        self._give_up_idle()

    def _give_up_idle(self) -> None:
        if self.plan.scaling is None:
            return
        since = self._context.clock.now() - self._context.settings.instance_idle_s
        idle = [instance for instance in self.instances if not instance.copies and instance.idle_since <= since]
        for instance in idle:
            if len(self.instances) > self.plan.scaling.minimum:
                self.instances.remove(instance)

    def _new_instance(self) -> Instance:
        free = schedulable(self.plan.instance_type, self.plan.partitions)
        return Instance(free=free, idle_since=self._context.clock.now())

    def _new_replica(self, plan: ComponentPlan, instance: Instance) -> Replica:
        placement = Placement(
            endpoint_name=self._endpoint_name,
            variant_name=self.plan.name,
            replica_id=f"{instance.instance_id}-{secrets.token_hex(4)}",
            component_name=plan.name,
        )
        wanted = plan.resources
        memory_mb = model_memory_mb(self.plan.instance_type, wanted.accelerators, wanted.partition)
        return Replica(placement, replace(plan.container, memory_mb=memory_mb), self._context.containers)
