"""Classify device errors (out of memory, device lost, an error of the model), and release freed memory."""

from __future__ import annotations

import ctypes
import logging
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

CUDA_CONTEXT_MIB: Final = 443.0
"""Measured: idle GPU memory of three workers minus their weights was 442 to 444 MiB (A10G, lmi image, torch 2.11).

Other GPUs have other context sizes; no figures are available for them, so this figure is used for all GPUs.
"""

_OUT_OF_MEMORY_TYPES = {"OutOfMemoryError", "MemoryError"}
_OUT_OF_MEMORY_TEXTS = (
    *("out of memory", "can't allocate memory", "not enough memory", "cuda_error_out_of_memory"),
    *("cublas_status_alloc_failed", "cudnn_status_alloc_failed"),
    # torch's allocator queries the driver for its error text, and asserts that the query succeeds.
    "nvml_success == r internal assert",
)
# A library's handle cannot be made without memory, or on a lost device: a try of the device tells the two apart.
_OUT_OF_MEMORY_OR_LOST_TEXTS = (
    *("cublas_status_not_initialized", "cudnn_status_not_initialized", "cudnn_status_internal_error"),
)
# CUDA's "sticky" errors: after one of them every call of this process fails. They come under any of the prefixes
# "CUDA error: ", "CUDA driver error: ", "Triton Error [CUDA]: ".
_LOST_DEVICE_TEXTS = (
    *("device-side assert", "illegal memory access", "illegal address", "illegal instruction", "misaligned address"),
    *("unspecified launch failure", "launch timed out", "uncorrectable", "hardware stack error"),
    *("invalid program counter", "shared address space", "gpu is lost", "driver shutting down", "context is destroyed"),
)
# Errors of one launch only: the next call of this process works.
_MODEL_TEXTS = (
    *("invalid configuration argument", "no kernel image", "too many resources requested", "invalid device function"),
    *("cublas_status_not_supported", "cublas_status_invalid_value", "cudnn_status_not_supported"),
)


class NoDeviceError(ValueError):
    """The options name a GPU, and torch finds no GPU."""


def device_answers() -> bool:
    """Return False if a GPU on which this process holds memory fails to return a number that was copied to it.

    Running out of memory during this copy counts as a success.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return True
    try:
        for number in filter(torch.cuda.memory_reserved, range(torch.cuda.device_count())):
            probe = torch.ones(1, device=f"cuda:{number}")
            torch.cuda.synchronize(number)
            if probe.item() != 1.0:
                return False
    except Exception as error:  # noqa: BLE001 - a dead context may raise anything
        return _has(error, _OUT_OF_MEMORY_TEXTS)
    return True


def is_out_of_memory(error: BaseException, answers: Callable[[], bool] = device_answers) -> bool:
    """Return True if memory ran out, so that a smaller batch could succeed.

    `answers` returns True if the GPU still answers; it is called for errors whose text does not name the cause.
    """
    if type(error).__name__ in _OUT_OF_MEMORY_TYPES or _has(error, _OUT_OF_MEMORY_TEXTS):
        return True
    return _has(error, _OUT_OF_MEMORY_OR_LOST_TEXTS) and answers()


def is_lost_device(error: BaseException, answers: Callable[[], bool] = device_answers) -> bool:
    """Return True if the GPU's state in this process is lost, so that every later call would fail as well.

    `answers` returns True if the GPU still answers. `answers` is called for errors of unknown text, because CUDA may
    report an error in a later, unrelated call. Only the text of a RuntimeError, the type that torch and Triton raise,
    is examined; errors of other types may quote a caller's text.
    """
    if isinstance(error, NoDeviceError):
        return True
    if type(error).__name__ in _OUT_OF_MEMORY_TYPES or _has(error, _OUT_OF_MEMORY_TEXTS):
        return False
    if isinstance(error, RuntimeError) and _has(error, _LOST_DEVICE_TEXTS):
        return True
    if isinstance(error, RuntimeError) and _has(error, _MODEL_TEXTS):
        return False
    return not answers()


def free_device_memory() -> None:
    """Release the GPU memory that torch caches for later passes; on a lost device, log the failure."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    try:
        torch.cuda.empty_cache()
    except Exception as error:  # noqa: BLE001 - a dead context may raise anything, and the first error counts
        logger.warning("the GPU's cached memory cannot be returned: %s", error)


def _has(error: BaseException, texts: tuple[str, ...]) -> bool:
    text = str(error).lower()
    return any(part in text for part in texts)


def return_free_memory() -> None:
    """Release freed memory that glibc keeps to the operating system; with another C library, do nothing.

    Batches of changing sizes leave gaps between blocks in use. A process that keeps the gaps grows for days, and takes
    memory that other models on the instance could use.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
