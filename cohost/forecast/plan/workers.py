"""The memory of one worker of one model, in MiB.

On a GPU it is context, weights, activations and allocator slack; on the host it is the RSS. A worker is a process of
its own: DJL Serving shares neither weights nor CUDA contexts between workers. The sizes follow from the largest forward
pass that an entry's handler runs, and from the dtypes in which it holds the weights.
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
"""Memory that torch's caching allocator holds beyond what it has handed out.

At most one part-filled segment of 2 and one of 20 MiB, and cuBLAS's workspace of 8 MiB (torch's documented defaults).
"""

ALLOCATOR_SHARE: Final = 0.15
"""Assumed: activations of different sizes leave gaps in cached segments. Not measured."""

KERNELS_MIB: Final = 100.0
KERNELS_UNCERTAIN_MIB: Final = 50.0
"""Estimated, not measured: 50 to 150 MiB of kernels and library handles that the first passes add to the context.

The context was measured idle after load, and CUDA loads a kernel's code when it is first launched (CUDA C++ Programming
Guide, "Lazy Loading").
"""


@dataclass(frozen=True, kw_only=True)
class HostFigures:
    """Host memory of the server's processes before any weights.

    `gpu_worker_mib` is a whole GPU worker: its weights leave the host once they are on the GPU.
    """

    cpu_worker_mib: float
    gpu_worker_mib: float
    router_mib: float
    system_mib: float


SERVER: Final = HostFigures(cpu_worker_mib=650.0, gpu_worker_mib=1200.0, router_mib=213.0, system_mib=1024.0)
"""Figures of the real server.

GPU workers and router were measured on an endpoint (about 1.2 GB and 213 MB). A CPU worker's start is a process that
has imported torch 2.11 and transformers 5.9 (measured). System and agents are assumed.
"""

EMBEDDED: Final = HostFigures(cpu_worker_mib=430.0, gpu_worker_mib=0.0, router_mib=52.0, system_mib=0.0)
"""Figures of the emulator's container: its workers are forked, so they touch only part of the memory that they inherit.
"""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The demand of one model: number of workers, largest batch, length of its texts, dtype.

    `batch` and `tokens` describe the largest forward pass. `dtype` None is the checkpoint's own, and so is
    `loading_dtype`, the dtype of the weights before their conversion.
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
        """Return the bytes of an element during computation."""
        return ELEMENT_BYTES[self.dtype or self.profile.checkpoint_dtype]

    @property
    def activation_mib(self) -> float:
        """Return the peak of one forward pass in addition to the weights."""
        shape = self.profile.shape
        size = peak_activation_bytes(shape, batch=self.batch, tokens=self.tokens, element_bytes=self.element_bytes)
        return size / MIB

    @property
    def weight_mib(self) -> float:
        """Return the size of the weights as served."""
        return self.profile.weight_bytes(self.dtype) / MIB

    @property
    def working_mib(self) -> float:
        """Return the peak in addition to the weights: the largest pass, or the larger weights during loading."""
        loading = 0.0 if self.loading_dtype is None else self.profile.weight_bytes(self.loading_dtype) / MIB
        return max(self.activation_mib, loading - self.weight_mib)


@dataclass(frozen=True, kw_only=True)
class WorkerMemory:
    """The parts of one GPU worker's memory, in MiB; `activations` are everything temporary besides the weights."""

    context: float
    weights: float
    activations: float
    kernels: float
    slack: float

    @property
    def idle(self) -> float:
        """Return the memory of a loaded worker before its first call."""
        return self.context + self.weights

    @property
    def peak(self) -> float:
        """Return the memory of a worker after its largest batch; torch keeps that much cached."""
        return self.idle + self.activations + self.kernels + self.slack


def gpu_worker(demand: Demand) -> WorkerMemory:
    """Return the GPU memory of one worker."""
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
    """Return the largest pass as (texts, tokens per text), with texts of full length or of `tokens`.

    The stock handler runs texts one by one unless a caller requests batches by `parameters.batch_size`, so `batch_size`
    is the most that its callers can be expected to send. The batching handler fills a pass up to `max_batch_tokens`,
    whatever callers send, and truncates texts at `max_length`. Of all passes of that size, those with the longest texts
    need the most memory, because attention grows with the square of their length.
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
    # A sequence cannot be split, so one of full length runs even if it exceeds the budget.
    return max(1, min(budget // length, most or LIMITS["max_batch_sequences"][2])), length


def served_dtype(entry: ModelEntry) -> str | None:
    """Return the largest dtype that the weights may be served in; None is the checkpoint's own.

    The batching handler may return to fp32 from "auto", its default on a GPU, and with `dtype_fallback`. Weights of
    "tf32" are fp32.
    """
    if entry.handler != BATCHED:
        return entry.dtype
    falls_back = entry.batched is not None and bool(entry.batched.dtype_fallback)
    return "fp32" if falls_back or entry.dtype in {None, "auto", "tf32"} else entry.dtype
