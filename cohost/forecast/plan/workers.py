"""The memory of one worker of one model, in MiB.

GPU memory is the sum of CUDA context, weights, activations, kernels and allocator slack; host memory is the process's
resident memory. Each worker is one process: DJL Serving shares neither weights nor CUDA contexts between workers. The
sizes follow from the largest forward pass of the handler, and from the dtypes in which the handler holds the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cohost.archives.handlers import BATCHED
from cohost.forecast.plan.profiles import ELEMENT_BYTES
from cohost.forecast.plan.shapes import peak_activation_bytes
from cohost.handler.cohost_memory import CUDA_CONTEXT_MIB
from cohost.handler.cohost_options import AUTO_BATCH_TOKENS, LIMITS

if TYPE_CHECKING:
    from cohost.catalog.models import ModelEntry
    from cohost.forecast.plan.profiles import Profile
    from cohost.forecast.plan.shapes import ModelShape


MIB: Final = 1024 * 1024

ALLOCATOR_MIB: Final = 30.0
"""Memory that torch's caching allocator holds beyond its allocated tensors, in MiB.

This is at most one part-filled segment of 2 MiB, one of 20 MiB, and cuBLAS's workspace of 8 MiB (torch's documented
defaults).
"""

ALLOCATOR_SHARE: Final = 0.15
"""Share of the activations that is added for gaps in the allocator's cached segments; assumed, not measured.

Activations of different sizes leave such gaps.
"""

KERNELS_MIB: Final = 100.0
KERNELS_UNCERTAIN_MIB: Final = 50.0
"""Memory that the first passes add to the CUDA context for kernels and library handles; estimated as 100 ± 50 MiB.

The estimate is not measured: the context was measured idle after load, and CUDA loads a kernel's code when the kernel
is first launched (CUDA C++ Programming Guide, "Lazy Loading").
"""


@dataclass(frozen=True, kw_only=True)
class HostFigures:
    """The host memory of a server's processes before any weights, in MiB.

    `gpu_worker_mib` is a GPU worker's total, since its weights leave the host once they are on the GPU. `router_mib` is
    DJL Serving's Java process, `system_mib` the operating system and AWS's agents.
    """

    cpu_worker_mib: float
    gpu_worker_mib: float
    router_mib: float
    system_mib: float


SERVER: Final = HostFigures(cpu_worker_mib=650.0, gpu_worker_mib=1200.0, router_mib=213.0, system_mib=1024.0)
"""The host figures of the real LMI container.

The figures of a GPU worker and the router (about 1.2 GB and 213 MB) were published by others, of an earlier system.
The CPU worker's figure was measured on a process that has imported torch 2.11 and transformers 5.9. The figure of
system and agents is assumed.
"""

EMBEDDED: Final = HostFigures(cpu_worker_mib=430.0, gpu_worker_mib=0.0, router_mib=52.0, system_mib=0.0)
"""The host figures of the emulator's container.

Its workers are forked, so they touch only part of the memory that they inherit.
"""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The demand of one model: its number of workers per GPU or CPU instance, its largest forward pass, its dtype.

    The largest pass has `batch` texts of `tokens` tokens. `loading_dtype` is the dtype in which the weights are loaded
    before their conversion to `dtype`. None stands for the checkpoint's own dtype, for both.
    """

    name: str
    profile: Profile
    workers: int
    batch: int
    tokens: int
    dtype: str | None
    loading_dtype: str | None = None

    @property
    def element_bytes(self) -> int:
        """Return the size of one number in a forward pass, in bytes."""
        return ELEMENT_BYTES[self.dtype or self.profile.checkpoint_dtype]

    @property
    def activation_mib(self) -> float:
        """Return the memory that the largest forward pass needs in addition to the weights, in MiB."""
        shape = self.profile.shape
        size = peak_activation_bytes(shape, batch=self.batch, tokens=self.tokens, element_bytes=self.element_bytes)
        return size / MIB

    @property
    def weight_mib(self) -> float:
        """Return the size of the weights in the served dtype, in MiB."""
        return self.profile.weight_bytes(self.dtype) / MIB

    @property
    def working_mib(self) -> float:
        """Return the memory beside the served weights, in MiB, that the largest pass or loading the weights needs."""
        loading = 0.0 if self.loading_dtype is None else self.profile.weight_bytes(self.loading_dtype) / MIB
        return max(self.activation_mib, loading - self.weight_mib)


@dataclass(frozen=True, kw_only=True)
class WorkerMemory:
    """The parts of one GPU worker's memory, in MiB.

    `activations` is all temporary memory, `slack` the memory that torch's allocator holds beyond its tensors.
    """

    context: float
    weights: float
    activations: float
    kernels: float
    slack: float

    @property
    def idle(self) -> float:
        """Return the GPU memory of a loaded worker before its first call, in MiB."""
        return self.context + self.weights

    @property
    def peak(self) -> float:
        """Return the GPU memory of a worker after its largest batch, in MiB; torch keeps freed memory cached."""
        return self.idle + self.activations + self.kernels + self.slack


def gpu_worker(demand: Demand) -> WorkerMemory:
    """Return the parts of the GPU memory that one worker needs, in MiB."""
    activations = demand.working_mib
    return WorkerMemory(
        context=CUDA_CONTEXT_MIB,
        weights=demand.weight_mib,
        activations=activations,
        kernels=KERNELS_MIB,
        slack=ALLOCATOR_MIB + ALLOCATOR_SHARE * activations,
    )


def cpu_worker_mib(demand: Demand, figures: HostFigures = SERVER) -> float:
    """Return the resident memory of one worker that computes on the CPU, in MiB."""
    return figures.cpu_worker_mib + demand.weight_mib + demand.working_mib


def largest_pass(entry: ModelEntry, shape: ModelShape, *, on_gpu: bool, tokens: int | None = None) -> tuple[int, int]:
    """Return an entry's largest forward pass as (texts, tokens per text), with texts of full length or of `tokens`.

    DJL's own handler runs texts one by one unless a caller requests batches by `parameters.batch_size`, so the entry's
    `batch_size` is the most that callers can be expected to send. The project's batching handler fills a pass up to
    `max_batch_tokens`, for any request, and truncates texts at `max_length`. Of all passes with that many tokens, the
    pass with the longest texts needs the most memory, because attention grows with the square of the length.
    """
    if entry.handler != BATCHED:
        return entry.batch_size or 1, tokens or shape.longest_input
    settings = entry.batched
    limit = settings.max_length if settings is not None else None
    length = min(tokens or shape.longest_input, limit if isinstance(limit, int) else shape.longest_input)
    budget = settings.max_batch_tokens if settings is not None else None
    if not isinstance(budget, int):
        budget = AUTO_BATCH_TOKENS["cuda" if on_gpu else "cpu"]
    most = settings.max_batch_sequences if settings is not None else None
    # A text cannot be split, so a single text of full length runs even if its tokens exceed the budget.
    return max(1, min(budget // length, most or LIMITS["max_batch_sequences"][2])), length


def served_dtype(entry: ModelEntry) -> str | None:
    """Return the largest dtype in which an entry's weights may be served; None is the checkpoint's own dtype.

    The batching handler may return to fp32 with `dtype_fallback` and with the dtype "auto", its default on a GPU. With
    "tf32" the weights are in fp32.
    """
    if entry.handler != BATCHED:
        return entry.dtype
    falls_back = entry.batched is not None and bool(entry.batched.dtype_fallback)
    return "fp32" if falls_back or entry.dtype in {None, "auto", "tf32"} else entry.dtype
