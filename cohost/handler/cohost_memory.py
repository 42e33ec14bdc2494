"""Out-of-memory and lost-device errors, and freed memory that goes back to the system."""

from __future__ import annotations

import ctypes

_OUT_OF_MEMORY_TYPES = {"OutOfMemoryError", "MemoryError"}
_OUT_OF_MEMORY_TEXTS = ("out of memory", "can't allocate memory", "not enough memory")
_LOST_DEVICE_TEXTS = ("cuda error", "device-side assert", "cublas_status", "cudnn_status_execution_failed")


class NoDeviceError(ValueError):
    """The options name a GPU and there is none."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if a smaller batch could succeed. torch signals that by type on a GPU and by text on a CPU."""
    text = str(error).lower()
    return type(error).__name__ in _OUT_OF_MEMORY_TYPES or any(part in text for part in _OUT_OF_MEMORY_TEXTS)


def is_lost_device(error: BaseException) -> bool:
    """Return True if the GPU's state in this process is lost, so that every later call would fail as well."""
    if isinstance(error, NoDeviceError):
        return True
    text = str(error).lower()
    return not is_out_of_memory(error) and any(part in text for part in _LOST_DEVICE_TEXTS)


def return_free_memory() -> None:
    """Return freed memory that the C library keeps to the system, if it can (glibc).

    Batches of changing sizes leave gaps between live blocks, and a process that keeps them grows for days: memory that
    other models on the instance could use.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
