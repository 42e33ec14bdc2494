"""Look up the instance types of endpoints: vCPUs, memory, GPUs, and AWS's support of multi-model endpoints.

The sources of these tables were read on 2026-11-30. The figures are those of the EC2 type, which has the same name
without "ml." (DescribeInstanceTypes). The types are those that SageMaker hosting accepts
(ProductionVariantInstanceType). GPU memory is EC2's figure for one GPU; for A10G, L4 and L40S this is the nominal 24 or
48 GiB less the part that the driver takes. The figures of K80 and V100 are from AWS's pages of the P2 and P3 families.
Graviton types are left out: the server images are built for x86.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_MIB_PER_GIB: Final = 1024

# CUDA dropped Kepler with 12.0 and everything before Turing with 13.0 (NVIDIA's release notes of those versions).
_MINIMUM_COMPUTE_CAPABILITY: Final[Mapping[int, tuple[int, int]]] = {12: (5, 0), 13: (7, 5)}


@dataclass(frozen=True, kw_only=True)
class Instance:
    """The hardware of one instance type; `gpu_memory_mib` is the memory of one GPU, 0 without a GPU.

    `multi_model_gpu_documented` is True if AWS lists the type among the GPU types for multi-model endpoints. For a CPU
    type `multi_model_gpu_documented` is always False and has no meaning, because every CPU type supports multi-model
    endpoints.
    """

    vcpus: int
    memory_mib: int
    gpus: int = 0
    gpu_name: str | None = None
    gpu_memory_mib: int = 0
    gpu_compute_capability: tuple[int, int] | None = None
    multi_model_gpu_documented: bool = False

    def runs_cuda(self, cuda_major: int) -> bool:
        """Return True if this major version of CUDA supports the GPU, or if the GPU's compute capability is unknown."""
        least = _MINIMUM_COMPUTE_CAPABILITY.get(cuda_major)
        return least is None or self.gpu_compute_capability is None or self.gpu_compute_capability >= least


@dataclass(frozen=True, kw_only=True)
class _Gpu:
    name: str
    memory_mib: int
    compute_capability: tuple[int, int]


_GPUS: Final[Mapping[str, _Gpu]] = {
    "p2": _Gpu(name="K80", memory_mib=12288, compute_capability=(3, 7)),
    "p3": _Gpu(name="V100", memory_mib=16384, compute_capability=(7, 0)),
    "g4dn": _Gpu(name="T4", memory_mib=16384, compute_capability=(7, 5)),
    "g5": _Gpu(name="A10G", memory_mib=22888, compute_capability=(8, 6)),
    "g6": _Gpu(name="L4", memory_mib=22888, compute_capability=(8, 9)),
    "g6e": _Gpu(name="L40S", memory_mib=45776, compute_capability=(8, 9)),
    "p4d": _Gpu(name="A100", memory_mib=40960, compute_capability=(8, 0)),
    "p4de": _Gpu(name="A100", memory_mib=81920, compute_capability=(8, 0)),
    "p5": _Gpu(name="H100", memory_mib=81920, compute_capability=(9, 0)),
    "p5e": _Gpu(name="H200", memory_mib=144384, compute_capability=(9, 0)),
    "p5en": _Gpu(name="H200", memory_mib=144384, compute_capability=(9, 0)),
}

# Size of an instance → number of vCPUs, memory in GiB, number of GPUs.
_G5_SIZES: Final[Mapping[str, tuple[int, int, int]]] = {
    "xlarge": (4, 16, 1),
    "2xlarge": (8, 32, 1),
    "4xlarge": (16, 64, 1),
    "8xlarge": (32, 128, 1),
    "12xlarge": (48, 192, 4),
    "16xlarge": (64, 256, 1),
    "24xlarge": (96, 384, 4),
    "48xlarge": (192, 768, 8),
}
_GPU_SIZES: Final[Mapping[str, Mapping[str, tuple[int, int, int]]]] = {
    "p2": {"xlarge": (4, 61, 1), "8xlarge": (32, 488, 8), "16xlarge": (64, 732, 16)},
    "p3": {"2xlarge": (8, 61, 1), "8xlarge": (32, 244, 4), "16xlarge": (64, 488, 8)},
    "g4dn": {size: figures for size, figures in _G5_SIZES.items() if size not in {"24xlarge", "48xlarge"}},
    "g5": _G5_SIZES,
    "g6": _G5_SIZES,
    "g6e": {size: (vcpus, 2 * memory_gib, gpus) for size, (vcpus, memory_gib, gpus) in _G5_SIZES.items()},
    "p4d": {"24xlarge": (96, 1152, 8)},
    "p4de": {"24xlarge": (96, 1152, 8)},
    "p5": {"4xlarge": (16, 256, 1), "48xlarge": (192, 2048, 8)},
    "p5e": {"48xlarge": (192, 2048, 8)},
    "p5en": {"48xlarge": (192, 2048, 8)},
}

# AWS: "Supported algorithms, frameworks, and instances for multi-model endpoints", read 2026-11-30.
_MULTI_MODEL_GPU_TYPES: Final = frozenset(
    {"ml.p2.xlarge", "ml.p3.2xlarge"}
    | {f"ml.{family}.{size}" for family in ("g4dn", "g5") for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge")}
    | {"ml.g4dn.16xlarge", "ml.g5.16xlarge"}
)

_SIX_AND_LATER: Final = ("large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge", "24xlarge")

# Family of instance types → GiB of memory per vCPU, and the sizes that SageMaker hosting accepts.
_CPU_FAMILIES: Final[Mapping[str, tuple[int, tuple[str, ...]]]] = {
    "c5": (2, ("large", "xlarge", "2xlarge", "4xlarge", "9xlarge", "18xlarge")),
    "c6i": (2, (*_SIX_AND_LATER, "32xlarge")),
    "c7i": (2, (*_SIX_AND_LATER, "48xlarge")),
    "m5": (4, ("large", "xlarge", "2xlarge", "4xlarge", "12xlarge", "24xlarge")),
    "m6i": (4, (*_SIX_AND_LATER, "32xlarge")),
    "m7i": (4, (*_SIX_AND_LATER, "48xlarge")),
    "r5": (8, ("large", "xlarge", "2xlarge", "4xlarge", "12xlarge", "24xlarge")),
    "r6i": (8, (*_SIX_AND_LATER, "32xlarge")),
    "r7i": (8, (*_SIX_AND_LATER, "48xlarge")),
}


# In AWS's naming, a "d" after the generation means local disks. The other types in the pattern have local disks without
# a "d" (EC2 user guide: instance store volumes, read 2026-11-30).
_OWN_DISKS: Final = re.compile(r"ml\.([a-z]+[0-9][a-z-]*d[a-z-]*|g[567]e?|gr6|p5(e|en)?|trn[12]n?|i[0-9][a-z]*)\..*")


def has_own_disks(instance_type: str) -> bool:
    """Return True if an instance type has local NVMe disks, which are hardware-encrypted and hold the models."""
    return bool(_OWN_DISKS.fullmatch(instance_type))


def _vcpus(size: str) -> int:
    """Return the number of vCPUs of a CPU instance by its size: 2 for "large", 4 for "xlarge", N x 4 for "Nxlarge"."""
    if size == "large":
        return 2
    return 4 * int(size.removesuffix("xlarge") or 1)


def _gpu_types() -> Iterator[tuple[str, Instance]]:
    for family, sizes in _GPU_SIZES.items():
        gpu = _GPUS[family]
        for size, (vcpus, memory_gib, gpus) in sizes.items():
            name = f"ml.{family}.{size}"
            yield (
                name,
                Instance(
                    vcpus=vcpus,
                    memory_mib=memory_gib * _MIB_PER_GIB,
                    gpus=gpus,
                    gpu_name=gpu.name,
                    gpu_memory_mib=gpu.memory_mib,
                    gpu_compute_capability=gpu.compute_capability,
                    multi_model_gpu_documented=name in _MULTI_MODEL_GPU_TYPES,
                ),
            )


def _cpu_types() -> Iterator[tuple[str, Instance]]:
    for family, (gib_per_vcpu, sizes) in _CPU_FAMILIES.items():
        for size in sizes:
            vcpus = _vcpus(size)
            yield f"ml.{family}.{size}", Instance(vcpus=vcpus, memory_mib=vcpus * gib_per_vcpu * _MIB_PER_GIB)


INSTANCES: Final[Mapping[str, Instance]] = {**dict(_gpu_types()), **dict(_cpu_types())}
