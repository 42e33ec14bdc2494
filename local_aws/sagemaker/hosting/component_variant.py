"""The copies of an inference component that serve on one variant.

A production variant made of inference components: instances that come and go, and the copies placed on them.

With ManagedInstanceScaling there are as many instances as the copies need, within the bounds, and for a while those
that copies have left; without it the count is fixed. An instance costs nothing here but its name: what takes a process
is a copy.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from local_aws.sagemaker.errors import DeploymentError, ResourceLimitExceeded, no_component_capacity
from local_aws.sagemaker.hosting.endpoint_snapshot import model_memory_mb
from local_aws.sagemaker.hosting.host import Seat
from local_aws.sagemaker.hosting.placement import Machine, schedulable
from local_aws.sagemaker.hosting.replicas import Replica, all_of, drain_and_stop, invoke_one
from local_aws.sagemaker.telemetry.metrics import ConcurrencyGauge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

    from local_aws.sagemaker.hosting.endpoint_snapshot import ContainerPlan, VariantPlan
    from local_aws.sagemaker.hosting.host import Host
    from local_aws.sagemaker.hosting.placement import Resources


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
            ValidationError: there is no copy.
        """
        if not self.in_service:
            self.meter.count("NoCapacityInvocationFailures")
            raise no_component_capacity()

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


# Quoted in the deployment guide of Hugging Face's SageMaker skills.
NO_ROOM = (
    "There is not enough hardware resources on the instances for this endpoint to create a copy of the inference "
    "component."
)


class ComponentVariant:
    """One production variant, its instances, and the copies of every component on them."""

    def __init__(self, endpoint_name: str, plan: VariantPlan, host: Host) -> None:
        self.plan = plan
        self.weight = plan.weight
        self._endpoint_name = endpoint_name
        self._host = host
        self._copies: dict[str, Copies] = {}
        self.machines = [self._new_machine() for _ in range(plan.instance_count)]

    @property
    def instance_count(self) -> int:
        """How many instances there are."""
        return len(self.machines)

    @property
    def placed(self) -> list[Copy]:
        """The copies in service of every component."""
        return [copy for copies in self._copies.values() for copy in copies.in_service]

    def copies(self, component_name: str) -> Copies:
        """The copies of a component; none are in service before the first `scale`."""
        if component_name not in self._copies:
            self._copies[component_name] = Copies(component_name, self._host)
        return self._copies[component_name]

    async def start(self) -> None:
        """Nothing is to be started before there are copies."""

    async def stop(self) -> None:
        """Stop everything at once."""
        await asyncio.gather(*(copy.replica.stop() for copy in self.placed))

    async def drain_and_stop(self) -> None:
        """Let running calls end, within a limit, and stop everything."""
        await drain_and_stop([copy.replica for copy in self.placed], self._host.settings.drain_limit_s)

    async def adopt(self, other: ComponentVariant) -> None:
        """Have the copies that another variant has; raises DeploymentError."""
        for copies in other._copies.values():
            for copy in copies.in_service:
                await self._add(copy.plan, 1)

    async def scale(self, plan: ComponentPlan, count: int) -> None:
        """Have so many copies of a component. Raises DeploymentError, with the copies as they were."""
        serving = self.copies(plan.name).in_service
        if count > len(serving):
            await self._add(plan, count - len(serving))
        # Copies on instances with few of them go first: that empties instances.
        by_company = sorted(serving, key=lambda copy: copy.machine.copies, reverse=True)
        await self._remove(by_company[count:])

    async def roll(self, plan: ComponentPlan, *, batch: int, pause_s: float) -> None:
        """Replace copies that run anything else than `plan`, `batch` at a time: new ones first, then the old ones go.

        Raises:
            DeploymentError: a batch found no room or did not come up; the batches before it are done.
        """
        outdated = [copy for copy in self.copies(plan.name).in_service if copy.plan is not plan]
        for start in range(0, len(outdated), batch):
            old = outdated[start : start + batch]
            await self._add(plan, len(old))
            await asyncio.sleep(pause_s)
            await self._remove(old)

    def forget(self, component_name: str) -> None:
        """Drop what is known of a component; it has no copies any more."""
        self._copies.pop(component_name, None)

    def report(self) -> None:
        """Record the metrics that no call records, and give up instances that have been idle for long."""
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

    async def _remove(self, gone: Sequence[Copy]) -> None:
        for copy in gone:
            self.copies(copy.plan.name).in_service.remove(copy)
        try:
            await drain_and_stop([copy.replica for copy in gone], self._host.settings.drain_limit_s)
        finally:
            self._vacate(gone)

    def _place(self, plan: ComponentPlan, count: int) -> list[Copy]:
        """Reserve room for all copies, or for none."""
        placed: list[Copy] = []
        try:
            for _ in range(count):
                machine = self._machine_for(plan.resources)
                machine.take(plan.resources)
                placed.append(Copy(plan=plan, machine=machine, replica=self._new_replica(plan, machine)))
        except DeploymentError:
            self._vacate(placed)
            raise
        return placed

    def _machine_for(self, wanted: Resources) -> Machine:
        """The instance with room and the fewest copies (AWS: PlacementStrategy SPREAD), a new one if need be."""
        roomy = [machine for machine in self.machines if machine.free.holds(wanted)]
        if roomy:
            return min(roomy, key=lambda machine: machine.copies)
        machine = self._new_machine()
        if self.plan.scaling is None or not machine.free.holds(wanted):
            raise DeploymentError(NO_ROOM)
        if len(self.machines) >= self.plan.scaling.maximum:
            raise DeploymentError(NO_ROOM)
        try:
            self._host.quotas.check([(self.plan.instance_type, 1)])
        except ResourceLimitExceeded as fault:
            raise DeploymentError(str(fault)) from fault
        self.machines.append(machine)
        return machine

    def _vacate(self, copies: Sequence[Copy]) -> None:
        for copy in copies:
            copy.machine.give_back(copy.plan.resources, self._host.clock.now())
        self._give_up_idle()

    def _give_up_idle(self) -> None:
        if self.plan.scaling is None:
            return
        since = self._host.clock.now() - self._host.settings.instance_idle_s
        for machine in [machine for machine in self.machines if not machine.copies and machine.idle_since <= since]:
            if len(self.machines) > self.plan.scaling.minimum:
                self.machines.remove(machine)

    def _new_machine(self) -> Machine:
        return Machine(free=schedulable(self.plan.instance_type), idle_since=self._host.clock.now())

    def _new_replica(self, plan: ComponentPlan, machine: Machine) -> Replica:
        seat = Seat(
            endpoint_name=self._endpoint_name,
            variant_name=self.plan.name,
            replica_id=f"{machine.instance_id}-{secrets.token_hex(4)}",
            component_name=plan.name,
        )
        memory_mb = model_memory_mb(self.plan.instance_type, plan.resources.accelerators)
        return Replica(seat, replace(plan.container, memory_mb=memory_mb), self._host)
