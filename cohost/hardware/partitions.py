"""Check layouts of GPU partitions (NVIDIA Multi-Instance GPU) against the profiles of each instance type.

A layout is the list of partitions of one GPU. SageMaker applies the layout to every GPU of every instance of a variant,
and each copy of an inference component takes one partition (SageMaker developer guide, "Create an endpoint with GPU
partitions" and "Deploy models to GPU partitions with inference components", read 2026-12-01; this project has not tried
it). The profiles (kinds of partition) of the instance types are those that AWS's HyperPod command line lists
(aws/sagemaker-hyperpod-cli, training/constants.py, read 2026-12-01). A GPU has 7 compute slices and 8 memory slices
(NVIDIA: Multi-Instance GPU user guide). A partition with a profile such as `mig-3g.40gb` takes 3 compute slices, and
memory slices in proportion to its 40 GB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


COMPUTE_SLICES: Final = 7
MEMORY_SLICES: Final = 8
MOST_PARTITIONS: Final = 32
"""The most partitions that a layout may list (SageMaker API reference: AcceleratorPartitionLayout)."""

_NAME: Final = re.compile(r"mig-([0-9]+)g\.([0-9]+)gb")
_A100_40: Final = ("mig-1g.5gb", "mig-1g.10gb", "mig-2g.10gb", "mig-3g.20gb", "mig-4g.20gb", "mig-7g.40gb")
_80_GB: Final = ("mig-1g.10gb", "mig-1g.20gb", "mig-2g.20gb", "mig-3g.40gb", "mig-4g.40gb", "mig-7g.80gb")
_H200: Final = ("mig-1g.18gb", "mig-1g.35gb", "mig-2g.35gb", "mig-3g.71gb", "mig-4g.71gb", "mig-7g.141gb")

PROFILES: Final[Mapping[str, tuple[str, ...]]] = {
    "ml.p4d.24xlarge": _A100_40,
    "ml.p4de.24xlarge": _80_GB,
    "ml.p5.48xlarge": _80_GB,
    "ml.p5e.48xlarge": _H200,
    "ml.p5en.48xlarge": _H200,
}
"""The partition profiles of each instance type, from the smallest to the whole GPU; types without partitions are left
out, and so is ml.p5.4xlarge, whose profiles no source lists."""


@dataclass(frozen=True, kw_only=True)
class Slices:
    """A number of compute slices and a number of memory slices of a GPU."""

    compute: int
    memory: int

    def __add__(self, other: Slices) -> Slices:
        """Return the sum of two amounts of slices."""
        return Slices(compute=self.compute + other.compute, memory=self.memory + other.memory)

    def __str__(self) -> str:
        """Return the amount of slices as text, such as "3 compute slices and 4 memory slices"."""
        return f"{self.compute} compute slices and {self.memory} memory slices"


GPU: Final = Slices(compute=COMPUTE_SLICES, memory=MEMORY_SLICES)
"""The slices of one whole GPU."""


def slices_of(profile: str, instance_type: str) -> Slices:
    """Return the slices that a partition takes on an instance type; its profile must be in `PROFILES`."""
    whole = PROFILES[instance_type][-1]
    compute, memory_gb = _figures(profile)
    return Slices(compute=compute, memory=round(MEMORY_SLICES * memory_gb / _figures(whole)[1]))


def memory_mib_of(profile: str) -> int:
    """Return the GPU memory of a partition in MiB, as the profile's name states it."""
    return _figures(profile)[1] * 1024


def unknown_profiles(profiles: Sequence[str], instance_type: str) -> list[str]:
    """Return the given profiles that an instance type lacks, each once; all of them if it has no partitions."""
    return [one for one in dict.fromkeys(profiles) if one not in PROFILES.get(instance_type, ())]


def needed(layout: Sequence[str], instance_type: str) -> Slices:
    """Return the slices of one GPU that a layout takes; all its profiles must be in `PROFILES`."""
    return sum((slices_of(profile, instance_type) for profile in layout), Slices(compute=0, memory=0))


def fits(layout: Sequence[str], instance_type: str) -> bool:
    """Return True if one GPU of an instance type has enough slices for a layout, whose profiles are in `PROFILES`."""
    wanted = needed(layout, instance_type)
    return wanted.compute <= GPU.compute and wanted.memory <= GPU.memory


def _figures(profile: str) -> tuple[int, int]:
    found = _NAME.fullmatch(profile)
    assert found is not None  # noqa: S101 - the profiles of the table have this form
    return int(found[1]), int(found[2])
