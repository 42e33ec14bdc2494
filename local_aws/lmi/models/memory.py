"""The memory of models: the use of processes, the need of a model, and the check of a load against the free memory.

Source: DJL Serving 0.36.0 (ModelInfo), recorded (05).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from local_aws.lmi.errors import OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from local_aws.lmi.settings import ModelSettings


# What the real server's multi-model mode takes a model's files for, in memory.
_ESTIMATE = 1.2
_MIB = 1024 * 1024


def resident_mb(pids: Iterable[int]) -> int:
    """Return the memory that processes hold, in MiB; one that has ended holds nothing."""
    return sum(map(resident_bytes, pids)) // _MIB


def check_fits(settings: ModelSettings, *, estimated_mb: int, used_mb: int, budget_mb: int | None) -> None:
    """Compare a model's required and reserved memory with the free memory.

    `estimated_mb` replaces a requirement that the model does not set; `used_mb` is what loaded models take of
    `budget_mb`. Without a budget the machine's available memory counts, as in the real server.

    Raises:
        OutOfMemory: less would stay free than `reserved_memory_mb`.
    """
    required = settings.required_memory_mb or estimated_mb
    free = psutil.virtual_memory().available // _MIB if budget_mb is None else budget_mb - used_mb
    if free - required < settings.reserved_memory_mb:
        raise OutOfMemory


def resident_bytes(pid: int) -> int:
    """Return the memory that a process holds; 0 when it has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def estimated_mb(settings: ModelSettings, folder: Path) -> int:
    """Return 1.2 times the size of a model's files, the need of a model that states none; 0 if it is spread over GPUs.

    Only multi-model mode holds models against it.
    """
    if settings.properties.get("tensor_parallel_degree", "0") not in {"0", "-1"}:
        return 0
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return int(size * _ESTIMATE) // _MIB
