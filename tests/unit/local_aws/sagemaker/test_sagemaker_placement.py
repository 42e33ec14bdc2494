"""The resources that instances have for copies, and those that a copy takes."""

from __future__ import annotations

import pytest

from local_aws.sagemaker.hosting.placement import Instance, Resources, schedulable


@pytest.mark.parametrize(("memory_mib", "fits"), [(1024, True), (4096, False)])
def test_memory_is_held_back_as_measured(memory_mib: int, fits: bool) -> None:  # noqa: FBT001
    """On ml.g5.xlarge a copy can reserve 1,024 MiB and not 4,096, as measured on SageMaker."""
    wanted = Resources.required({"MinMemoryRequiredInMb": memory_mib, "NumberOfAcceleratorDevicesRequired": 1})
    assert schedulable("ml.g5.xlarge").holds(wanted) is fits


def test_every_type_has_something_for_copies() -> None:
    """A small CPU type reserves an eighth of its memory, and an unknown type has none for copies."""
    assert schedulable("ml.c5.large") == Resources(accelerators=0, cpu_cores=2, memory_mib=512)
    assert not schedulable("ml.none.large").holds(Resources.required({"MinMemoryRequiredInMb": 128}))


def test_taking_and_giving_back_cancel_out() -> None:
    """An instance is as free after a copy has ended as before its start."""
    free = schedulable("ml.g5.12xlarge")
    instance = Instance(free=free, idle_since=0)
    wanted = Resources(accelerators=4, cpu_cores=0.25, memory_mib=1024)
    instance.take(wanted)
    assert instance.copies == 1
    assert not instance.free.holds(Resources(accelerators=1, cpu_cores=0, memory_mib=128))
    instance.give_back(wanted, 5)
    assert (instance.free, instance.copies, instance.idle_since) == (free, 0, 5)
