"""The device of a model (CPU or GPU): its choice, memory and number formats, and torch's threads.

A half-precision format is accepted if the model's outputs for fixed texts agree with its fp32 outputs on the same
device.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from .cohost_errors import fault, reason_of
from .cohost_memory import CUDA_CONTEXT_MIB, NoDeviceError, free_device_memory
from .cohost_request import LONGEST_FIRST, Cut
from .cohost_texts import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cohost_options import Options
    from .cohost_tasks import Floats
    from .cohost_tokenizer import Encoded, Tokenizer


logger = logging.getLogger(__name__)

_MIB = 1024 * 1024
# The memory plan is reported as tight from 90 % of the GPU's memory, so the margins of all models together still fit.
_MARGIN = 1.1
_IDLE_S = 10.0
# With MPI (option.mpi_mode) the server names no GPU, and without this log line a model would be many times slower
# for no visible reason.
_UNUSED_GPU = (
    "device: auto is the CPU, since the server named no GPU for this worker, and this machine has one; fix: write "
    "device cuda to use it, or cpu if this is meant"
)

_TEXTS = (
    Text("Good."),
    Text("The train was two hours late, and nobody told us why."),
    Text("배송이 빨라서 아주 만족합니다.", "상품이 늦게 도착했다."),
    Text("这家餐厅的菜很好吃,但是服务太慢了。"),
    Text("كانت الرحلة طويلة لكنها ممتعة.", "كانت الرحلة قصيرة."),
    Text("Отличный телефон, батареи хватает на два дня 🎉", "The battery is good."),
)
_LEAST_COSINE = 0.99


def check_texts() -> tuple[Text, ...]:
    """Return the fixed texts for comparing number formats: single texts and pairs, in several scripts."""
    return _TEXTS


def check_sequences(tokenizer: Tokenizer, limit: int) -> list[Encoded]:
    """Return the fixed check texts as sequences, and a text that repeats them up to the model's limit in tokens."""
    whole = " ".join(text.first for text in _TEXTS)
    # Each word gives at least one token, so this many words reach the limit.
    full = Text(" ".join([whole] * (limit // len(whole.split()) + 1)))
    return tokenizer.encode([*_TEXTS, full], Cut(LONGEST_FIRST, limit))


def disagreement(reference: Sequence[Floats], candidate: Sequence[Floats], *, labels: bool) -> str | None:
    """Return the first fault in a number format's outputs for the check texts, compared to fp32's; None if they agree.

    A fault is a number that is not finite, another best label, or a vector whose cosine to that of fp32 is below 0.99.
    With `labels`, an output is the logits of a text; without, its vector.
    """
    for number, (expected, got) in enumerate(zip(reference, candidate, strict=True)):
        if not np.isfinite(got).all():
            return f"check text {number} gives a number that is not finite"
        if labels and len(expected) > 1 and expected.argmax() != got.argmax():
            return f"check text {number} gets another label than in fp32"
        if not labels and (cosine := _cosine(expected, got)) < _LEAST_COSINE:
            return f"check text {number} gives a vector of cosine {cosine:.3f} to that of fp32"
    return None


def largest_difference(reference: Sequence[Floats], candidate: Sequence[Floats]) -> float:
    """Return the largest absolute difference between numbers at the same place of two lists of outputs."""
    return max(float(np.abs(expected - got).max()) for expected, got in zip(reference, candidate, strict=True))


def _cosine(first: Floats, second: Floats) -> float:
    return float(first @ second / max(float(np.linalg.norm(first) * np.linalg.norm(second)), 1e-12))


_FIRST_WITH_TF32 = (8, 0)  # Ampere
_CPU_INFO = Path("/proc/cpuinfo")
_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # x86 with AVX-512 or AMX, Arm


def device_of(options: Options) -> torch.device:
    """Return the device that the options name; "auto" means the GPU that DJL Serving gave this worker, or the CPU.

    Raises:
        NoDeviceError: the options name a GPU, and torch finds no GPU.
    """
    if options.device == "cpu":
        return torch.device("cpu")
    if options.device == "auto" and options.device_id is None:
        if torch.cuda.is_available():
            logger.warning("%s", _UNUSED_GPU)
        return torch.device("cpu")
    if not torch.cuda.is_available():
        problem = f"{options.device} needs a GPU, and torch finds none here ({_reason_for_no_gpu()})"
        raise NoDeviceError(fault("device", problem, allowed="cpu, or auto", fix="write cpu, or choose a GPU instance"))
    # If DJL Serving shows each worker only its own GPU, that GPU has number 0.
    number = options.device_id or 0
    return torch.device("cuda", number if number < torch.cuda.device_count() else 0)


def _reason_for_no_gpu() -> str:
    """Return CUDA's reason for finding no GPU, since `torch.cuda.is_available` returns no reason."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call] # torch gives it no types
    except Exception as error:  # noqa: BLE001 - torch raises several kinds
        return reason_of(error)
    return "it has no CUDA device"


def set_threads(options: Options, device: torch.device) -> int:
    """Set and return torch's number of threads: on a CPU, the cores divided by the number of the model's workers.

    No core is reserved for the server and for tokenising: both need little time, and preempt torch's threads, which
    sleep while they wait. The lmi image starts Python with OMP_NUM_THREADS=1, which suits many workers, but leaves
    cores idle if one worker forms batches. On a GPU one thread suffices, and more threads do harm if they spin while
    they wait.
    """
    if options.threads is not None:
        threads = options.threads
    elif device.type == "cpu" and os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE":
        threads = max(1, _cores() // options.workers)
    else:
        threads = 1
    torch.set_num_threads(threads)
    return threads


def half_types(device: torch.device) -> list[str]:
    """Return the half-precision formats that a device computes natively, best first."""
    if device.type == "cuda":
        return ["fp16", "bf16"] if torch.cuda.is_bf16_supported(including_emulation=False) else ["fp16"]
    return ["bf16"] if has_native_bf16(_cpu_info()) else []


def has_tf32(device: torch.device) -> bool:
    """Return True if the device has TF32 (fp32 products with fewer bits), as GPUs from compute capability 8.0 do."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _FIRST_WITH_TF32


def has_native_bf16(cpu_info: str) -> bool:
    """Return True if `cpu_info` (/proc/cpuinfo) lists bf16 instructions; emulated bf16 would be slower than fp32."""
    return any(
        _BF16_FLAGS & set(line.partition(":")[2].split())
        for line in cpu_info.splitlines()
        if line.lower().startswith(("flags", "features"))
    )


class DeviceMemory:
    """The GPU memory of this process, limited to the planned amount so that other models' processes keep theirs.

    On a CPU all methods do nothing. `planned_mib` is the planned peak, the CUDA context included; None means no limit.
    """

    def __init__(self, device: torch.device, planned_mib: int | None) -> None:
        self._device = device
        self._planned = None if planned_mib is None else max(0, planned_mib - CUDA_CONTEXT_MIB) * _MIB
        self._warm = 0
        self._passes = 0
        self._idle_since = time.monotonic()

    def settle(self) -> None:
        """Limit the process's GPU memory to 1.1 times the planned peak, or times the use up to now if that is more."""
        if self._device.type != "cuda":
            return
        self._warm = torch.cuda.memory_reserved(self._device)
        if self._planned is None:
            return
        if self._warm > self._planned:
            logger.warning(
                "the model took %d MiB of the GPU on load, and %d MiB are planned; lower max_batch_tokens, or raise "
                "gpu.required_memory_mb and reserved_memory_mb",
                *(self._warm // _MIB, self._planned // _MIB),
            )
        limit = _MARGIN * max(self._planned, self._warm)
        total = torch.cuda.get_device_properties(self._device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), self._device)
        logger.info("the GPU's memory is limited to %d MiB for this process", min(limit, total) // _MIB)

    def tick(self, passes: int) -> None:
        """If no pass began for 10 s and torch holds more memory than after warm-up, free its cache; called regularly.

        Args:
            passes: the number of passes so far.
        """
        now = time.monotonic()
        if passes != self._passes:
            self._passes, self._idle_since = passes, now
        elif self._device.type == "cuda" and now - self._idle_since > _IDLE_S:
            self._idle_since = now
            if torch.cuda.memory_reserved(self._device) > self._warm:
                free_device_memory()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_info() -> str:
    return _CPU_INFO.read_text(encoding="utf-8", errors="replace") if _CPU_INFO.is_file() else ""
