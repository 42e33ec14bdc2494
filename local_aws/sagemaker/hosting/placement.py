"""The placement of containers: the resources of instances and copies, and the location of a container.

Copies of inference components reserve resources but are not limited to them: a copy that reserved 1,024 MiB may use
more, as on SageMaker.
"""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cohost.hardware.instances import INSTANCES
from local_aws.kit.account import component_log_group, log_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# SageMaker reserves part of an instance's memory for itself and does not document how much: of the 16 GiB of
# ml.g5.xlarge, a copy can reserve 1,024 MiB but not 4,096. Holding back 14 GiB, at most seven eighths of the memory,
# lies between the two; the value for other types is inferred from this one.
_HELD_BACK_MIB = 14 * 1024
_LEAST_SHARE = 8

# The text is quoted in the deployment guide of Hugging Face's SageMaker skills.
NO_ROOM = (
    "There is not enough hardware resources on the instances for this endpoint to create a copy of the inference "
    "component."
)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """An amount of accelerators (GPUs), CPU cores and memory in MiB, free or reserved on an instance.

    `partitions` are the numbers of GPU partitions by partition type. An instance whose GPUs are partitioned has no
    accelerators, and a copy that takes a partition takes no accelerator.
    """

    accelerators: int
    cpu_cores: float
    memory_mib: int
    partitions: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def required(cls, requirements: Mapping[str, Any]) -> Resources:
        """Read the resources that one copy needs (AWS API reference: InferenceComponentComputeResourceRequirements)."""
        accelerators = int(requirements.get("NumberOfAcceleratorDevicesRequired", 0))
        partition = requirements.get("AcceleratorPartitionType")
        return cls(
            accelerators=0 if partition else accelerators,
            cpu_cores=float(requirements.get("NumberOfCpuCoresRequired", 0)),
            memory_mib=requirements["MinMemoryRequiredInMb"],
            partitions={partition: accelerators} if partition else {},
        )

    @property
    def partition(self) -> str | None:
        """The type of the partition that a copy takes; None for a copy with whole accelerators."""
        return next(iter(self.partitions), None)

    def __sub__(self, taken: Resources) -> Resources:
        """Return the free resources after a reservation."""
        return self._changed(taken, -1)

    def __add__(self, freed: Resources) -> Resources:
        """Return the free resources after the end of a reservation."""
        return self._changed(freed, 1)

    def holds(self, wanted: Resources) -> bool:
        """Return True if the resources `wanted` fit into this amount."""
        left = self - wanted
        return min(left.accelerators, left.cpu_cores, left.memory_mib, *left.partitions.values()) >= 0

    def _changed(self, by: Resources, sign: int) -> Resources:
        names = {*self.partitions, *by.partitions}
        return Resources(
            accelerators=self.accelerators + sign * by.accelerators,
            cpu_cores=self.cpu_cores + sign * by.cpu_cores,
            memory_mib=self.memory_mib + sign * by.memory_mib,
            partitions={name: self.partitions.get(name, 0) + sign * by.partitions.get(name, 0) for name in names},
        )


def schedulable(instance_type: str, layout: Sequence[str] = ()) -> Resources:
    """Return the resources that an empty instance has for copies; none for an unknown instance type.

    `layout` is the list of partitions of each GPU, empty if GPUs are whole.
    """
    if (instance := INSTANCES.get(instance_type)) is None:
        return Resources(accelerators=0, cpu_cores=0, memory_mib=0)
    memory = max(instance.memory_mib - _HELD_BACK_MIB, instance.memory_mib // _LEAST_SHARE)
    return Resources(
        accelerators=0 if layout else instance.gpus,
        cpu_cores=instance.vcpus,
        memory_mib=memory,
        partitions={name: count * instance.gpus for name, count in Counter(layout).items()},
    )


def new_instance_id() -> str:
    """Make an id for an instance, in the form of EC2's instance ids."""
    return f"i-{secrets.token_hex(8)}f"


@dataclass(eq=False, kw_only=True)
class Instance:
    """An instance of a variant that is made of components.

    `free` are the resources that no copy has reserved, `copies` the number of copies on the instance. `idle_since` is
    the time when the last copy left, in seconds of the emulator's clock (local_aws/kit/clock.py); this time is used
    only while there is no copy.
    """

    free: Resources
    idle_since: float
    instance_id: str = field(default_factory=new_instance_id)
    copies: int = 0

    def take(self, wanted: Resources) -> None:
        """Reserve resources for a copy; the caller has checked that they are free."""
        self.free -= wanted
        self.copies += 1

    def give_back(self, taken: Resources, now: float) -> None:
        """End the reservation of a copy; `now` is in seconds of the emulator's clock (local_aws/kit/clock.py)."""
        self.free += taken
        self.copies -= 1
        self.idle_since = now


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The location of a container; `replica_id` is its instance's id, plus a suffix for a component's copy."""

    endpoint_name: str
    variant_name: str
    replica_id: str
    component_name: str | None = None

    @property
    def log_group(self) -> str:
        """The log group of the container's output."""
        if self.component_name is None:
            return log_group(self.endpoint_name)
        return component_log_group(self.component_name)

    @property
    def start_failure(self) -> str:
        """SageMaker's error text for the case that a container of this variant or component does not start."""
        if self.component_name is None:
            container, owner = f"primary container for production variant {self.variant_name}", "endpoint"
        else:
            container, owner = f"container of inference component {self.component_name}", "inference component"
        return f"The {container} did not pass the ping health check. Please check CloudWatch logs for this {owner}."
