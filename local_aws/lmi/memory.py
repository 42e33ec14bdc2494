"""Whether a model fits: DJL Serving's check before a load, against a budget or the machine's free memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from local_aws.lmi.faults import OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local_aws.lmi.model_settings import ModelSettings

_MIB = 1024 * 1024


def resident_mb(pids: Iterable[int]) -> int:
    """What processes hold in memory, in MiB; one that has gone holds nothing."""
    return sum(map(resident_bytes, pids)) // _MIB


def check_fits(settings: ModelSettings, *, estimated_mb: int, used_mb: int, budget_mb: int | None) -> None:
    """Holds a model's required and reserved memory against what is free.

    `estimated_mb` stands in for a requirement that the model does not state; `used_mb` is what loaded models take of
    `budget_mb`. Without a budget the machine's available memory counts, as in the real server.

    Raises:
        OutOfMemory: less would stay free than `reserved_memory_mb`.
    """
    required = settings.required_memory_mb or estimated_mb
    free = psutil.virtual_memory().available // _MIB if budget_mb is None else budget_mb - used_mb
    if free - required < settings.reserved_memory_mb:
        raise OutOfMemory


def resident_bytes(pid: int) -> int:
    """What a process holds in memory; 0 when it has gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
