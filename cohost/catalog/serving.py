"""What a catalog's models are served with: serving.properties per model, the image, the bounds of instances."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cohost.artifacts.archive import bundle_files, in_file_order, model_files
from cohost.artifacts.handlers import BATCHED, ENTRY_POINT, RETRY_THRESHOLD, handler_files
from cohost.artifacts.layout import BUNDLE_NAME
from cohost.artifacts.packed import with_part
from cohost.artifacts.weights import Revision, with_bucket
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
"""What any handler imports and the cpu-full image lacks (DJL Serving 0.36.0), with transformers and torch as the lmi
image has them and the rest as they resolve together (2026-11)."""

STOCK_REQUIREMENTS = ("peft==0.21.2", "accelerate==1.15.0")
"""What the server's own handler imports beside."""


def properties_of(entry: ModelEntry) -> dict[str, str]:
    """The keys and values of serving.properties, in the order of the file; the same entry gives the same lines.

    `rolling_batch` is always disabled, because it is a way of generating text, and `tensor_parallel_degree` always
    written, because a worker takes every GPU of the machine without it.
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
        **_cpu_workers(entry),
        "required_memory_mb": entry.required_memory_mb,
        "reserved_memory_mb": entry.reserved_memory_mb,
        "batch_size": entry.batch_size,
        "max_batch_delay": entry.max_batch_delay,
        "max_idle_time": entry.max_idle_time,
        "job_queue_size": entry.job_queue_size,
        **_handler_settings(entry),
        **entry.properties,
    }
    return in_file_order({key: _text(value) for key, value in settings.items() if value is not None})


def pushed_revision(entry: ModelEntry) -> Revision | None:
    """The weights that `cohost weights push` uploads for an entry; None where the container fetches them elsewhere."""
    if not entry.pushed or entry.revision is None:
        return None
    return Revision(entry.model_id, entry.revision)


def packed_revision(entry: ModelEntry) -> Revision | None:
    """The weights that go into the entry's archive; None where the archive names them."""
    return pushed_revision(entry) if entry.weights == "archive" else None


def requirements_for(entry: ModelEntry, image: Image) -> tuple[str, ...]:
    """The lines of the archive's requirements.txt: what the entry's handler imports and the image lacks, and
    its packages; none where there is nothing of either kind.
    """
    needed: tuple[str, ...] = ()
    if image.flavour == "cpu-full":
        needed = CPU_FULL_REQUIREMENTS if entry.handler == BATCHED else CPU_FULL_REQUIREMENTS + STOCK_REQUIREMENTS
    return requirement_lines(entry.packages, needed)


def code_of(entry: ModelEntry) -> Mapping[str, bytes]:
    """The files of the entry's handler by name, none where the server's own handler serves it, and its wheels."""
    return {**(handler_files(entry.handler) if entry.handler == BATCHED else {}), **wheels_of(entry.packages)}


def files_of(entry: ModelEntry, image: Image, weights_bucket: str | None = None) -> dict[str, bytes]:
    """The members of the entry's archive by name: the same bytes for the same entry, on any machine, at any time.

    Raises:
        ArtifactError: the entry's weights were pushed to S3 and no bucket is given.
    """
    properties = with_bucket(properties_of(entry), weights_bucket)
    files = model_files(properties, requirements_for(entry, image), code_of(entry))
    revision = packed_revision(entry)
    return files if revision is None else with_part(files, revision, str(weights_bucket))


def archives_of(
    catalog: Catalog, entries: Mapping[str, ModelEntry], weights_bucket: str | None = None
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield name and members of each archive that a deploy publishes for these entries of a catalog.

    That is one a model, or with topology scale-to-zero one of all.

    Raises:
        ArtifactError: as `files_of`.
    """
    image = parse_image(catalog.endpoint.image)
    models = {name: files_of(entry, image, weights_bucket) for name, entry in entries.items()}
    yield from [(BUNDLE_NAME, bundle_files(models))] if catalog.endpoint.topology == SCALE_TO_ZERO else models.items()


def _model_id(entry: ModelEntry) -> str | None:
    """Where the container finds the weights; pushed ones lie in a bucket whose name is put in when the archive is.

    None for weights that lie beside the properties, where the server looks when nothing is said.
    """
    revision = pushed_revision(entry)
    if revision is None:
        return entry.model_id
    return None if entry.weights == "archive" else revision.location


def _cpu_workers(entry: ModelEntry) -> dict[str, int]:
    """The workers on a CPU. Where the catalog does not say, the server starts up to one a core, and ends idle ones."""
    if entry.cpu is not None:
        return {"cpu.minWorkers": entry.cpu.min_workers, "cpu.maxWorkers": entry.cpu.max_workers}
    # The server leaks the process of an asynchronous worker that it ends, so it gets none to end.
    return {"cpu.minWorkers": 1, "cpu.maxWorkers": 1} if entry.handler == BATCHED else {}


def _handler_settings(entry: ModelEntry) -> dict[str, str | float | bool | None]:
    """Give what makes the server call our handler, asynchronously, and start it again, and what the handler reads."""
    if entry.handler != BATCHED:
        return {}
    given = {} if entry.batched is None else entry.batched.model_dump()
    return {
        "option.async_mode": True,
        "option.entryPoint": ENTRY_POINT,
        "retry_threshold": RETRY_THRESHOLD,
        **{f"option.{name}": value for name, value in given.items()},
    }


def _text(value: str | float | bool) -> str:  # noqa: FBT001 - a setting of any type
    """A value as DJL Serving writes it: true and false in small letters."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def image_of(endpoint: Endpoint, region: str) -> ImageUri:
    """The server image: the one named in full, else AWS's own for the region.

    Raises:
        ImageError: the image cannot be read, or the region has no known registry for it.
    """
    if endpoint.image_uri is not None:
        return parse_image_uri(endpoint.image_uri)
    return locate_image(endpoint.image, region)


def inference_ami_version(endpoint: Endpoint, image: Image) -> str | None:
    """The host image: the one whose driver fits the server image, the one named, or None to leave it to SageMaker."""
    match endpoint.inference_ami_version:
        case "default":
            return default_inference_ami_version(image)
        case "none":
            return None
        case verbatim:
            return verbatim


def instances_for(copies: int, instance_type: str) -> int:
    """The instances that so many copies of the one component need."""
    return math.ceil(copies / copies_per_instance(instance_type))


def copies_per_instance(instance_type: str) -> int:
    """The copies of the one component that an instance holds: a copy takes one GPU, or a CPU instance."""
    instance = INSTANCES.get(instance_type)
    return max(1 if instance is None else instance.gpus, 1)


def instance_bounds(catalog: Catalog) -> tuple[int, int]:
    """The fewest and the most instances at any time, an update's spare one not counted."""
    endpoint, scaling = catalog.endpoint, catalog.scaling
    if scaling is None:
        return endpoint.initial_instance_count, endpoint.initial_instance_count
    if endpoint.topology == SCALE_TO_ZERO:
        least, most = (instances_for(copies, endpoint.instance_type) for copies in (scaling.lowest, scaling.highest))
        return least, most
    return scaling.lowest, scaling.highest
