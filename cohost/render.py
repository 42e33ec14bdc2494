"""A catalog entry as what its archive holds: DJL Serving properties and, on images without packages, requirements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohost.artifacts.archive import model_files

if TYPE_CHECKING:
    from cohost.catalog import DeviceSettings, ModelEntry
    from cohost.images import Image

CPU_FULL_REQUIREMENTS = (
    "transformers==5.9.0",
    "torch==2.11.0",
    "sentencepiece==0.2.3",
    "protobuf==7.36.2",
    "peft==0.21.2",
    "accelerate==1.15.0",
)
"""What the Python handler imports and the cpu-full image lacks (DJL Serving 0.36.0), with transformers and torch as
the lmi image has them and the rest as they resolve together (2026-11)."""


def properties_of(entry: ModelEntry) -> dict[str, str]:
    """The lines of serving.properties, in the order in which they are written; the same entry gives the same lines.

    `rolling_batch` is always disabled, because it is a way of generating text, and `tensor_parallel_degree` always
    written, because a worker takes every GPU of the machine without it.
    """
    properties = {
        "engine": "Python",
        "option.model_id": entry.model_id,
        "option.task": entry.task,
        "option.rolling_batch": "disable",
        **_workers("gpu", entry.gpu),
        **_given(required_memory_mb=entry.required_memory_mb),
    }
    if entry.revision is not None:
        properties["option.revision"] = entry.revision
    properties["option.tensor_parallel_degree"] = str(entry.tensor_parallel_degree)
    properties |= _given(
        **{
            "gpu.required_memory_mb": entry.gpu.required_memory_mb,
            "reserved_memory_mb": entry.reserved_memory_mb,
            "batch_size": entry.batch_size,
            "max_batch_delay": entry.max_batch_delay,
            "max_idle_time": entry.max_idle_time,
            "job_queue_size": entry.job_queue_size,
            "option.dtype": entry.dtype,
            "option.trust_remote_code": entry.trust_remote_code,
        }
    )
    if entry.cpu is not None:
        properties |= _workers("cpu", entry.cpu)
        properties |= _given(**{"cpu.required_memory_mb": entry.cpu.required_memory_mb})
    return properties | entry.properties


def requirements_for(entry: ModelEntry, image: Image) -> tuple[str, ...]:
    """The lines of the archive's requirements.txt; none where the image brings what the entry's handler imports."""
    if entry.handler == "stock" and image.flavour == "cpu-full":
        return CPU_FULL_REQUIREMENTS
    return ()


def files_of(entry: ModelEntry, image: Image) -> dict[str, bytes]:
    """The members of the entry's archive by name: the same bytes for the same entry, on any machine, at any time."""
    return model_files(properties_of(entry), requirements_for(entry, image))


def _workers(device: str, settings: DeviceSettings) -> dict[str, str]:
    return {f"{device}.minWorkers": str(settings.min_workers), f"{device}.maxWorkers": str(settings.max_workers)}


def _given(**settings: str | float | bool | None) -> dict[str, str]:
    """The settings that have a value, as DJL Serving writes them: true and false in small letters."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in settings.items()
        if value is not None
    }
