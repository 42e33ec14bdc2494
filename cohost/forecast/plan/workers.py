"""Compute the memory of one worker of a model, and of an engine process that several models share, in MiB.

GPU memory is the sum of CUDA context, weights, activations, kernels and allocator slack; host memory is the process's
resident memory. With `handler: stock` a worker is one process; with `handler: batched` it is a proxy process and an
engine process of its own. Workers with `handler: stock` or `batched` share neither weights nor a CUDA context with
other workers. With `handler: shared` a worker is a proxy process, plus the model's weights in the engine process of the
device. An engine process of `handler: shared` has one CUDA context for all models and, on a GPU, runs one forward pass
at a time. The sizes follow from the largest forward pass of the handler, and from the dtypes in which the handler holds
the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cohost.archives.handlers import ENGINE_HANDLERS, SHARED
from cohost.forecast.plan.profiles import ELEMENT_BYTES
from cohost.forecast.plan.shapes import peak_activation_bytes
from cohost.handler.cohost_memory import CUDA_CONTEXT_MIB
from cohost.handler.cohost_options import AUTO_BATCH_TOKENS, LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    `gpu_worker_mib` is the whole host memory of a process that computes on a GPU, since its weights leave the host once
    they are on the GPU. `proxy_mib` is the host memory of a proxy process. `router_mib` is DJL Serving's Java process,
    `system_mib` the operating system and AWS's agents.
    """

    cpu_worker_mib: float
    gpu_worker_mib: float
    proxy_mib: float
    router_mib: float
    system_mib: float


SERVER: Final = HostFigures(
    cpu_worker_mib=650.0, gpu_worker_mib=1200.0, proxy_mib=40.0, router_mib=213.0, system_mib=1024.0
)
"""The host figures of the real LMI container.

The figures of a GPU worker and the router (about 1.2 GB and 213 MB) were published by others, of an earlier system. The
CPU worker's figure was measured on a process that has imported torch 2.11 and transformers 5.9. A proxy process with
numpy and tokenizers had 37 MiB resident on a real DJL Serving 0.36.0, 21 of them its own share. The figure of system
and agents is assumed.
"""

EMBEDDED: Final = HostFigures(cpu_worker_mib=430.0, gpu_worker_mib=0.0, proxy_mib=40.0, router_mib=52.0, system_mib=0.0)
"""The host figures of the emulator's container.

Its workers are forked, so they touch only part of the memory that they inherit.
"""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The numbers that decide a model's memory: workers per GPU or CPU instance, largest forward pass, and dtypes.

    The largest pass has `batch` texts of `tokens` tokens. `loading_dtype` is the dtype in which the weights are loaded
    before their conversion to `dtype`. For `dtype` and `loading_dtype`, None stands for the checkpoint's own dtype.
    `handler` is the catalog's value.
    """

    name: str
    profile: Profile
    workers: int
    batch: int
    tokens: int
    dtype: str | None
    loading_dtype: str | None = None
    handler: str = "stock"

    @property
    def shared(self) -> bool:
        """Return True if the model shares the engine process of its device with other models."""
        return self.handler == SHARED

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
        """Return the memory, in MiB, that the largest pass or the loading needs in addition to the served weights."""
        return max(self.activation_mib, self.loading_extra_mib)

    @property
    def loading_extra_mib(self) -> float:
        """Return the memory, in MiB, that loading the weights needs in addition to the served weights."""
        return max(self.loading_mib - self.weight_mib, 0.0)

    @property
    def loading_mib(self) -> float:
        """Return the size of the weights in `loading_dtype`, in MiB; 0 if that is None."""
        return 0.0 if self.loading_dtype is None else self.profile.weight_bytes(self.loading_dtype) / MIB


@dataclass(frozen=True, kw_only=True)
class WorkerMemory:
    """The parts of one GPU worker's memory, in MiB.

    `activations` is all temporary memory, `slack` the memory that torch's allocator holds beyond its tensors. A worker
    with `handler: shared` has only weights; the other parts belong to its engine process (`SharedEngines`).
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
        """Return a worker's peak GPU memory, in MiB, which torch keeps cached after the largest batch."""
        return self.idle + self.activations + self.kernels + self.slack


def gpu_worker(demand: Demand) -> WorkerMemory:
    """Return the parts of the GPU memory that one worker needs, in MiB."""
    if demand.shared:
        return WorkerMemory(context=0.0, weights=demand.weight_mib, activations=0.0, kernels=0.0, slack=0.0)
    return _process_on_gpu(demand.weight_mib, demand.working_mib)


def _process_on_gpu(weights: float, activations: float) -> WorkerMemory:
    return WorkerMemory(
        context=CUDA_CONTEXT_MIB,
        weights=weights,
        activations=activations,
        kernels=KERNELS_MIB,
        slack=ALLOCATOR_MIB + ALLOCATOR_SHARE * activations,
    )


def cpu_worker_mib(demand: Demand, figures: HostFigures = SERVER) -> float:
    """Return the resident memory, in MiB, that one worker takes for computing on the CPU, without its proxy process."""
    if demand.shared:
        return demand.weight_mib
    return figures.cpu_worker_mib + demand.weight_mib + demand.working_mib


def host_worker_mib(demand: Demand, *, on_gpu: bool, figures: HostFigures = SERVER) -> float:
    """Return the host memory, in MiB, of one worker of a model: that of its proxy process and of its engine process.

    For a model with `handler: shared`, the engine process is not included (see `SharedEngines`), except the model's
    weights on a CPU instance.
    """
    proxy = figures.proxy_mib if demand.handler in ENGINE_HANDLERS else 0.0
    if not on_gpu:
        return proxy + cpu_worker_mib(demand, figures)
    return proxy + (0.0 if demand.shared else figures.gpu_worker_mib)


SIDE_BY_SIDE: Final = 2
"""The most passes that an engine process runs at a time on a CPU; on a GPU it runs one after another."""


@dataclass(frozen=True, kw_only=True)
class SharedEngines:
    """The engine processes of one device, or of a CPU instance, that all models with `handler: shared` use.

    `count` is the catalog's `engines_per_device`. `gpu` is the GPU memory of one engine process without the models'
    weights (None on a CPU), `host_mib` its host memory. Each engine process is counted with the largest forward passes
    of all models, since any engine process may run any model.
    """

    count: int
    gpu: WorkerMemory | None
    host_mib: float

    @property
    def gpu_total_mib(self) -> float:
        """Return the GPU memory of all engine processes at their peaks, without the models' weights, in MiB."""
        return 0.0 if self.gpu is None else self.gpu.peak * self.count

    @property
    def gpu_check_mib(self) -> float:
        """Return the free GPU memory, in MiB, that DJL Serving's check requires beyond what loading a model takes.

        No archive can know if its model is the first to be loaded, which starts the engine process. So each model's
        archive reserves the memory of the CUDA context and kernels. For the last model, DJL Serving therefore requires
        that amount of free memory once more, although the engine process has already taken its own.
        """
        return 0.0 if self.gpu is None else self.gpu.context + self.gpu.kernels

    @property
    def host_total_mib(self) -> float:
        """Return the host memory of all engine processes of one device, in MiB."""
        return self.host_mib * self.count


def shared_engines(
    demands: Sequence[Demand], *, count: int, on_gpu: bool, figures: HostFigures = SERVER
) -> SharedEngines | None:
    """Return the engine processes of the models with `handler: shared`; None if no model has it.

    The temporary memory of an engine process is the sum for its largest forward pass (on a CPU: its two largest, which
    run side by side) and for the largest loading of a model, since other models are called while one model is loaded.
    """
    own = [demand for demand in demands if demand.shared]
    if not own:
        return None
    passes = sorted((demand.activation_mib for demand in own), reverse=True)
    load = max(demand.loading_extra_mib for demand in own)
    if on_gpu:
        return SharedEngines(count=count, gpu=_process_on_gpu(0.0, passes[0] + load), host_mib=figures.gpu_worker_mib)
    return SharedEngines(count=count, gpu=None, host_mib=figures.cpu_worker_mib + sum(passes[:SIDE_BY_SIDE]) + load)


def largest_pass(entry: ModelEntry, shape: ModelShape, *, on_gpu: bool, tokens: int | None = None) -> tuple[int, int]:
    """Return the largest forward pass of a model's worker as (texts, tokens per text).

    DJL's own handler runs texts one by one unless a caller requests batches by `parameters.batch_size`, so the plan
    takes the entry's `batch_size` as the largest value that callers send. The project's batching handler fills a pass
    with up to `max_batch_tokens` tokens and truncates texts at `max_length`. Of all passes with `max_batch_tokens`
    tokens, the pass with the longest texts needs the most memory, because attention's memory grows with the square of
    the length.
    """
    if entry.handler not in ENGINE_HANDLERS:
        return entry.batch_size or 1, tokens or shape.longest_input
    settings = entry.engine_settings
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

    The batching handler may serve fp32 instead if `dtype_fallback` is set or the dtype is "auto", its default on a GPU.
    With the dtype "tf32" the weights are in fp32.
    """
    if entry.handler not in ENGINE_HANDLERS:
        return entry.dtype
    falls_back = entry.engine_settings is not None and bool(entry.engine_settings.dtype_fallback)
    return "fp32" if falls_back or entry.dtype in {None, "auto", "tf32"} else entry.dtype
