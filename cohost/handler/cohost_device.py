"""The device of a model, its number of threads, and its number format.

A half-precision format is accepted if its outputs for fixed texts agree with those of fp32 on the same device.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from .cohost_memory import NoDeviceError
from .cohost_request import LONGEST_FIRST, Cut
from .cohost_texts import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cohost_options import Options
    from .cohost_tasks import Floats
    from .cohost_tokenizer import Encoded, Tokenizer


_TEXTS = (
    Text("Good."),
    Text("The train was two hours late, and nobody told us why."),
    Text("배송이 빨라서 아주 만족합니다.", "상품이 늦게 도착했다."),
    Text("这家餐厅的菜很好吃,但是服务太慢了。"),
    Text("كانت الرحلة طويلة لكنها ممتعة.", "كانت الرحلة قصيرة."),
    Text("Отличный телефон, батареи хватает на два дня 🎉", "The battery is good."),
)
_LEAST_COSINE = 0.99


def check_sequences(tokenizer: Tokenizer, limit: int) -> list[Encoded]:
    """Return the fixed texts, and one that repeats them up to the model's limit."""
    whole = " ".join(text.first for text in _TEXTS)
    # A word is at least one token for the limit.
    full = Text(" ".join([whole] * (limit // len(whole.split()) + 1)))
    return tokenizer.encode([*_TEXTS, full], Cut(LONGEST_FIRST, limit))


def disagreement(reference: Sequence[Floats], candidate: Sequence[Floats], *, labels: bool) -> str | None:
    """Return the fault in a format's outputs, or None.

    A fault is a number that is not finite, another label, or another direction. With `labels`, an output is the logits
    of a text, else its vector.
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
    """Return the largest difference of two numbers at the same index."""
    return max(float(np.abs(expected - got).max()) for expected, got in zip(reference, candidate, strict=True))


def _cosine(first: Floats, second: Floats) -> float:
    return float(first @ second / max(float(np.linalg.norm(first) * np.linalg.norm(second)), 1e-12))


_CPU_INFO = Path("/proc/cpuinfo")
_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # x86 with AVX-512 or AMX, Arm


def device_of(options: Options) -> torch.device:
    """Return the device that the options name; "auto" is the GPU that the server gave this worker, else the CPU.

    Raises:
        NoDeviceError: the options name a GPU and there is none.
    """
    if options.device == "cpu" or (options.device == "auto" and options.device_id is None):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise NoDeviceError(f"device: {options.device} needs a GPU, and torch finds none here; write cpu, or auto")
    # If the server shows each worker only its own GPU, that GPU is number 0.
    number = options.device_id or 0
    return torch.device("cuda", number if number < torch.cuda.device_count() else 0)


def set_threads(options: Options, device: torch.device) -> int:
    """Set torch's number of threads and return it: on a CPU all cores, divided among the model's workers.

    No core is reserved for the server and for tokenising: both need little, and preempt threads that yield. The lmi
    image starts Python with OMP_NUM_THREADS=1, which suits many workers but wastes cores for a worker that forms
    batches. On a GPU one thread suffices, and more do harm if waiting threads spin.
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
    """Return the half-precision formats worth trying on a device, best first: those with native arithmetic there."""
    if device.type == "cuda":
        return ["fp16", "bf16"] if torch.cuda.is_bf16_supported(including_emulation=False) else ["fp16"]
    return ["bf16"] if has_native_bf16(_cpu_info()) else []


def has_native_bf16(cpu_info: str) -> bool:
    """Return True if /proc/cpuinfo lists native bf16 arithmetic; emulated by torch, bf16 is slower than fp32."""
    return any(
        _BF16_FLAGS & set(line.partition(":")[2].split())
        for line in cpu_info.splitlines()
        if line.lower().startswith(("flags", "features"))
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_info() -> str:
    return _CPU_INFO.read_text(encoding="utf-8", errors="replace") if _CPU_INFO.is_file() else ""
