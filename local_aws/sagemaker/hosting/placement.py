"""Where the copies of inference components find room: what an instance has, what a copy takes.

Reservations, not caps: a copy that asked for 1,024 MiB may use more, as on the service.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cohost.instances import INSTANCES

if TYPE_CHECKING:
    from collections.abc import Mapping


# The service keeps a good part of an instance's memory to itself and does not say how much: of the 16 GiB of
# ml.g5.xlarge, 1,024 MiB can be had and 4,096 cannot. 14 GiB, and never more than seven eighths, lies between the two;
# the figure for other types is inferred from that one.
_HELD_BACK_MIB = 14 * 1024
_LEAST_SHARE = 8


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Accelerators, CPU cores and MiB of memory."""

    accelerators: int
    cpu_cores: float
    memory_mib: int

    @classmethod
    def required(cls, requirements: Mapping[str, Any]) -> Resources:
        """What one copy takes (AWS API reference: InferenceComponentComputeResourceRequirements)."""
        return cls(
            accelerators=int(requirements.get("NumberOfAcceleratorDevicesRequired", 0)),
            cpu_cores=float(requirements.get("NumberOfCpuCoresRequired", 0)),
            memory_mib=requirements["MinMemoryRequiredInMb"],
        )

    def __sub__(self, taken: Resources) -> Resources:
        """What is left when something is taken."""
        return Resources(
            accelerators=self.accelerators - taken.accelerators,
            cpu_cores=self.cpu_cores - taken.cpu_cores,
            memory_mib=self.memory_mib - taken.memory_mib,
        )

    def __add__(self, freed: Resources) -> Resources:
        """What there is when something is given back."""
        return Resources(
            accelerators=self.accelerators + freed.accelerators,
            cpu_cores=self.cpu_cores + freed.cpu_cores,
            memory_mib=self.memory_mib + freed.memory_mib,
        )

    def holds(self, wanted: Resources) -> bool:
        """Whether there is room for what is wanted."""
        left = self - wanted
        return left.accelerators >= 0 and left.cpu_cores >= 0 and left.memory_mib >= 0


def schedulable(instance_type: str) -> Resources:
    """What an empty instance has for copies; nothing for a type that is not known."""
    if (instance := INSTANCES.get(instance_type)) is None:
        return Resources(accelerators=0, cpu_cores=0, memory_mib=0)
    memory = max(instance.memory_mib - _HELD_BACK_MIB, instance.memory_mib // _LEAST_SHARE)
    return Resources(accelerators=instance.gpus, cpu_cores=instance.vcpus, memory_mib=memory)


def new_instance_id() -> str:
    """An id for an instance, in EC2's form."""
    return f"i-{secrets.token_hex(8)}f"


@dataclass(eq=False, kw_only=True)
class Machine:
    """An instance of a variant that is made of components.

    `free` is what no copy has taken, `idle_since` the time from which on there has been none.
    """

    free: Resources
    idle_since: float
    instance_id: str = field(default_factory=new_instance_id)
    copies: int = 0

    def take(self, wanted: Resources) -> None:
        """Reserve room for a copy; the caller has seen to it that there is some."""
        self.free -= wanted
        self.copies += 1

    def give_back(self, taken: Resources, now: float) -> None:
        """End a reservation."""
        self.free += taken
        self.copies -= 1
        self.idle_since = now
