"""Values derived from a catalog: the archive of each model, the server image, and the number of instances."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cohost.archives.archive import bundle_files, in_file_order, model_files
from cohost.archives.handlers import ENGINE_HANDLERS, ENTRY_POINT, RETRY_THRESHOLD, SHARED, handler_files
from cohost.archives.layout import BUNDLE_NAME
from cohost.archives.packed import with_part
from cohost.archives.weights import Revision, with_bucket
from cohost.catalog.packages import requirement_lines, wheels_of
from cohost.hardware.images import default_inference_ami_version, locate_image, parse_image, parse_image_uri
from cohost.hardware.instances import INSTANCES
from cohost.routing import SCALE_TO_ZERO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cohost.catalog.models import Catalog, Endpoint, ModelEntry
    from cohost.hardware.images import Image, ImageUri


CPU_FULL_REQUIREMENTS = (
    "transformers==5.9.0",
    "torch==2.11.0",
    "sentencepiece==0.2.3",
    "protobuf==7.36.2",
)
"""The packages that every handler imports and the cpu-full image lacks (DJL Serving 0.36.0).

transformers and torch have the versions of the lmi image; the others are the versions that resolve with them (2026-11).
"""

STOCK_REQUIREMENTS = ("peft==0.21.2", "accelerate==1.15.0")
"""The packages that DJL Serving's own handler imports in addition to CPU_FULL_REQUIREMENTS."""


def properties_of(entry: ModelEntry, endpoint: Endpoint | None = None, name: str | None = None) -> dict[str, str]:
    """Return a model's serving.properties in the order of the file; the same entry always gives the same lines.

    If `endpoint` states `engines_per_device`, a model with `handler: shared` gets this setting too. `name` is the
    model's name in the catalog. The project's handlers report the model's counters under this name, because SageMaker
    gives the server another name.

    `rolling_batch` is always disabled, because it is for text generation. `tensor_parallel_degree` is always written,
    because without it one worker takes every GPU of the instance.
    """
    settings: dict[str, str | float | bool | None] = {
        "engine": "Python",
        "option.model_id": _model_id(entry),
        "option.revision": entry.revision if entry.from_hub else None,
        "option.task": entry.task,
        "option.rolling_batch": "disable",
        "option.tensor_parallel_degree": entry.tensor_parallel_degree,
        "option.dtype": entry.dtype,
        "option.trust_remote_code": entry.trust_remote_code,
        "gpu.minWorkers": entry.gpu.min_workers,
        "gpu.maxWorkers": entry.gpu.max_workers,
        "gpu.required_memory_mb": entry.gpu.required_memory_mb,
        "gpu.reserved_memory_mb": entry.gpu.reserved_memory_mb,
        **_cpu_workers(entry),
        "required_memory_mb": entry.required_memory_mb,
        "reserved_memory_mb": entry.reserved_memory_mb,
        "batch_size": entry.batch_size,
        "max_batch_delay": entry.max_batch_delay,
        "max_idle_time": entry.max_idle_time,
        "job_queue_size": entry.job_queue_size,
        **_handler_settings(entry, name),
        **_engines(entry, endpoint),
        **entry.properties,
    }
    return in_file_order({key: _text(value) for key, value in settings.items() if value is not None})


def settings_of(entry: ModelEntry, endpoint: Endpoint) -> dict[str, str]:
    """Return all that decides a model's speed: its serving.properties, its handler and its packages."""
    return {**properties_of(entry, endpoint), "handler": entry.handler, "packages": ", ".join(entry.packages)}


def pushed_revision(entry: ModelEntry) -> Revision | None:
    """Return the revision that `cohost weights push` uploads for a model; None for weights from another source."""
    if not entry.pushed or entry.revision is None:
        return None
    return Revision(entry.model_id, entry.revision)


def packed_revision(entry: ModelEntry) -> Revision | None:
    """Return the revision whose weights are packed into a model's archive; None if it has no weights inside."""
    return pushed_revision(entry) if entry.weights == "archive" else None


def requirements_for(entry: ModelEntry, image: Image) -> tuple[str, ...]:
    """Return the lines of the requirements.txt in a model's archive.

    The lines are the packages that the model's handler imports and the image lacks, and the entry's own `packages`.
    """
    needed: tuple[str, ...] = ()
    if image.flavour == "cpu-full":
        needed = CPU_FULL_REQUIREMENTS + (() if entry.handler in ENGINE_HANDLERS else STOCK_REQUIREMENTS)
    return requirement_lines(entry.packages, needed)


def code_of(entry: ModelEntry) -> Mapping[str, bytes]:
    """Return the handler code (none for the server's own handler) and the wheels of a model, by file name."""
    return {**(handler_files(entry.handler) if entry.handler in ENGINE_HANDLERS else {}), **wheels_of(entry.packages)}


def files_of(
    entry: ModelEntry,
    image: Image,
    weights_bucket: str | None = None,
    *,
    endpoint: Endpoint | None = None,
    name: str | None = None,
) -> dict[str, bytes]:
    """Return the files of a model's archive by name; the same entry gives the same bytes on any machine, at any time.

    `endpoint` adds its settings for engine processes, and `name` is the model's name in the catalog (`properties_of`).

    Raises:
        ArtifactError: the model's weights were pushed to S3, and `weights_bucket` is not given.
    """
    properties = with_bucket(properties_of(entry, endpoint, name), weights_bucket)
    files = model_files(properties, requirements_for(entry, image), code_of(entry))
    revision = packed_revision(entry)
    return files if revision is None else with_part(files, revision, str(weights_bucket))


def archives_of(
    catalog: Catalog, entries: Mapping[str, ModelEntry], weights_bucket: str | None = None
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield name and files of each archive that a deploy publishes for the given models of a catalog.

    There is one archive per model, or with topology scale-to-zero one archive of all models.

    Raises:
        ArtifactError: a model's weights were pushed to S3, and `weights_bucket` is not given.
    """
    image = parse_image(catalog.endpoint.image)
    models = {
        name: files_of(entry, image, weights_bucket, endpoint=catalog.endpoint, name=name)
        for name, entry in entries.items()
    }
    yield from [(BUNDLE_NAME, bundle_files(models))] if catalog.endpoint.topology == SCALE_TO_ZERO else models.items()


def _model_id(entry: ModelEntry) -> str | None:
    """Return the location from which the container fetches a model's weights.

    The location of pushed weights has a placeholder for the bucket's name, which `files_of` fills in. Return None for
    weights packed beside serving.properties, the server's default location.
    """
    revision = pushed_revision(entry)
    if revision is None:
        return entry.model_id
    return None if entry.weights == "archive" else revision.location


def _cpu_workers(entry: ModelEntry) -> dict[str, int]:
    """Return the bounds for a model's workers on a CPU.

    Without these bounds, the server starts up to one worker per core and stops idle workers.
    """
    if entry.cpu is not None:
        return {"cpu.minWorkers": entry.cpu.min_workers, "cpu.maxWorkers": entry.cpu.max_workers}
    # The server leaks the process of an asynchronous worker that it stops, so both bounds are equal.
    return {"cpu.minWorkers": 1, "cpu.maxWorkers": 1} if entry.handler in ENGINE_HANDLERS else {}


def _handler_settings(entry: ModelEntry, name: str | None) -> dict[str, str | float | bool | None]:
    """Return the properties that the project's handlers need: asynchronous entry point, restarts, handler options."""
    if entry.handler not in ENGINE_HANDLERS:
        return {}
    given = {} if entry.engine_settings is None else entry.engine_settings.model_dump()
    return {
        "option.async_mode": True,
        "option.entryPoint": ENTRY_POINT,
        "retry_threshold": RETRY_THRESHOLD,
        "option.catalog_name": name,
        "option.shared": True if entry.handler == SHARED else None,
        **{f"option.{key}": value for key, value in given.items()},
    }


def _engines(entry: ModelEntry, endpoint: Endpoint | None) -> dict[str, int]:
    if entry.handler != SHARED or endpoint is None or "engines_per_device" not in endpoint.model_fields_set:
        return {}
    return {"option.engines_per_device": endpoint.engines_per_device}


def _text(value: str | float | bool) -> str:  # noqa: FBT001 - a setting of any type
    """Return a setting's value in the notation of serving.properties: true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def image_of(endpoint: Endpoint, region: str) -> ImageUri:
    """Return the URI of the server image: `image_uri` if the endpoint has it, else AWS's own image in the region.

    Raises:
        ImageError: the image reference cannot be read, or the region has no known registry of AWS's images.
    """
    if endpoint.image_uri is not None:
        return parse_image_uri(endpoint.image_uri)
    return locate_image(endpoint.image, region)


def inference_ami_version(endpoint: Endpoint, image: Image) -> str | None:
    """Return the InferenceAmiVersion that the catalog states, or else one whose GPU driver fits the image's CUDA.

    If the function returns None, SageMaker chooses the InferenceAmiVersion.
    """
    match endpoint.inference_ami_version:
        case "default":
            return default_inference_ami_version(image)
        case "none":
            return None
        case verbatim:
            return verbatim


def instances_for(copies: int, instance_type: str) -> int:
    """Return the number of instances that this many copies of the inference component need."""
    return math.ceil(copies / copies_per_instance(instance_type))


def copies_per_instance(instance_type: str) -> int:
    """Return the number of copies of the inference component on one instance: one per GPU, one on a CPU instance."""
    instance = INSTANCES.get(instance_type)
    return max(1 if instance is None else instance.gpus, 1)


def instance_bounds(catalog: Catalog) -> tuple[int, int]:
    """Return the fewest and the most instances of an endpoint, without the extra instances during an update."""
    endpoint, scaling = catalog.endpoint, catalog.scaling
    if scaling is None:
        return endpoint.initial_instance_count, endpoint.initial_instance_count
    if endpoint.topology == SCALE_TO_ZERO:
        least, most = (instances_for(copies, endpoint.instance_type) for copies in (scaling.lowest, scaling.highest))
        return least, most
    return scaling.lowest, scaling.highest
