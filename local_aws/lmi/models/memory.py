"""The memory of models: what processes use, what a model needs, and the check of a load against the free memory.

Source: DJL Serving 0.36.0 (ModelInfo), recorded (tests/data/djl_vectors/05_load_variants.json).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from local_aws.lmi.errors import OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from local_aws.lmi.settings import ModelSettings


# The real server's multi-model mode estimates a model's memory as this multiple of its files' size.
_ESTIMATE = 1.2
_MIB = 1024 * 1024


def resident_mb(pids: Iterable[int]) -> int:
    """Return the resident memory of processes together, in MiB; a process that has ended counts as 0."""
    return sum(map(resident_bytes, pids)) // _MIB


def check_fits(settings: ModelSettings, *, estimated_mb: int, used_mb: int, budget_mb: int | None) -> None:
    """Check that the free memory holds the memory that a model requires and the memory that it reserves.

    A model that sets no `required_memory_mb` requires `estimated_mb`. The free memory is `budget_mb` less `used_mb`,
    the memory of the loaded models; if `budget_mb` is None, it is the machine's available memory, as in the real
    server. All sizes are in MiB.

    Raises:
        OutOfMemory: less than the model's `reserved_memory_mb` would stay free.
    """
    required = settings.required_memory_mb or estimated_mb
    free = psutil.virtual_memory().available // _MIB if budget_mb is None else budget_mb - used_mb
    if free - required < settings.reserved_memory_mb:
        raise OutOfMemory


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, in bytes; 0 if the process has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def estimated_mb(settings: ModelSettings, folder: Path) -> int:
    """Return the estimated memory of a model, in MiB: 1.2 times the size of its files; 0 if it is spread over GPUs.

    Only multi-model mode uses the estimate, for a model that sets no `required_memory_mb`.
    """
    if settings.properties.get("tensor_parallel_degree", "0") not in {"0", "-1"}:
        return 0
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return int(size * _ESTIMATE) // _MIB
