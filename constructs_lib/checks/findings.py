"""Checks that the image fits the topology, the instance type and the region, before anything is deployed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from cohost.hardware.images import default_inference_ami_version
from cohost.hardware.instances import INSTANCES, has_own_disks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cohost.catalog.models import Endpoint
    from cohost.hardware.images import Image, ImageUri
    from cohost.hardware.instances import Instance


_GOOD_IMAGE: Final = "djl-inference:0.36.0-lmi26.0.0-cu130"
_NAMES_SHOWN: Final = 5
_NEURON_FAMILIES: Final = ("ml.inf", "ml.trn")


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """An objection to settings that do not go together: an error if the endpoint could not serve, else a warning.

    `name` is short and constant, so that the catalog can acknowledge a warning by its name.
    """

    level: Literal["error", "warning"]
    name: str
    message: str


def misfits(endpoint: Endpoint, image: Image, uri: ImageUri, region: str) -> list[Misfit]:
    """Return every objection to an endpoint's settings, errors and warnings alike."""
    instance = INSTANCES.get(endpoint.instance_type)
    found = [
        *_image_misfits(endpoint, image),
        *_region_misfits(uri, region),
        *_ami_misfits(endpoint, image),
        *_key_misfits(endpoint),
    ]
    if instance is None:
        return [*found, *_unknown_instance(endpoint, image)]
    return [*found, *_instance_misfits(endpoint, image, instance)]


def error(name: str, message: str) -> Misfit:
    """Return an objection of level error: the endpoint could not serve."""
    return Misfit(level="error", name=name, message=message)


def warning(name: str, message: str) -> Misfit:
    """Return an objection of level warning: the endpoint serves, but not well."""
    return Misfit(level="warning", name=name, message=message)


def some(names: Iterable[str]) -> str:
    """Join the first five names and the number of the others, so that a message stays one line for large catalogs."""
    listed = list(names)
    more = len(listed) - _NAMES_SHOWN
    return ", ".join(listed[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _image_misfits(endpoint: Endpoint, image: Image) -> Iterator[Misfit]:
    if "python" not in image.backends:
        has = ", ".join(sorted(image.backends)) or "none of DJL Serving's"
        yield error(
            "image-backend",
            f"endpoint.image: {endpoint.image!r} has no Python backend (it has {has}), so no archive of the catalog "
            f"loads; allowed: images of djl-inference; fix: image: {_GOOD_IMAGE}",
        )
    if endpoint.topology == "multi-model" and not image.multi_model:
        yield error(
            "image-multi-model",
            f"endpoint.image: {endpoint.image!r} lacks the label "
            "com.amazonaws.sagemaker.capabilities.multi-models, which topology multi-model needs; "
            f"allowed: images of djl-inference; fix: image: {_GOOD_IMAGE}",
        )


def _region_misfits(uri: ImageUri, region: str) -> Iterator[Misfit]:
    if uri.region != region:
        yield error(
            "image-region",
            f"endpoint.image_uri: {str(uri)!r} lies in {uri.region}; allowed: a registry in the endpoint's own region, "
            f"{region}; fix: copy the image to {region}, or deploy to {uri.region}",
        )


def _ami_misfits(endpoint: Endpoint, image: Image) -> Iterator[Misfit]:
    chosen, fitting = endpoint.inference_ami_version, default_inference_ami_version(image)
    if chosen not in {"default", "none", fitting} and fitting is not None:
        yield warning(
            "inference-ami-version",
            f"endpoint.inference_ami_version: {chosen!r} is not the one whose driver is known to fit {image.cuda}, "
            f"{fitting!r}; a driver that does not fit leaves the endpoint in Creating; fix: leave the key out",
        )


def _key_misfits(endpoint: Endpoint) -> Iterator[Misfit]:
    if endpoint.kms_key is not None and has_own_disks(endpoint.instance_type):
        yield error(
            "instance-kms-key",
            f"endpoint.kms_key: {endpoint.instance_type} keeps models on disks of its own (NVMe), which its hardware "
            "encrypts and which SageMaker encrypts with no key of yours (CreateEndpointConfig, KmsKeyId), so the key "
            "would protect nothing; allowed: with types without such disks, such as ml.m5.xlarge or ml.p3.2xlarge; "
            "fix: take kms_key out (storage.kms_key still encrypts the archives), or another instance_type",
        )


def _unknown_instance(endpoint: Endpoint, image: Image) -> Iterator[Misfit]:
    if image.accelerator == "neuron" and endpoint.instance_type.startswith(_NEURON_FAMILIES):
        return
    yield warning(
        "instance-type",
        f"endpoint.instance_type: {endpoint.instance_type!r} is in no table of this version, so nothing is checked for "
        "it; allowed: ml.g4dn, ml.g5, ml.g6, ml.g6e, ml.p2 to ml.p5 and the x86 types of ml.c, ml.m and ml.r; fix: "
        "take one of these, or acknowledge it",
    )


def _instance_misfits(endpoint: Endpoint, image: Image, instance: Instance) -> Iterator[Misfit]:
    if image.accelerator == "neuron":
        yield error(
            "image-accelerator",
            f"endpoint.image: {endpoint.image!r} is built for Neuron, {endpoint.instance_type} has none; "
            f"allowed: ml.inf and ml.trn types; fix: image: {_GOOD_IMAGE}, or another instance_type",
        )
    elif instance.gpus:
        yield from _gpu_misfits(endpoint, image, instance)
    elif image.accelerator == "gpu":
        yield warning(
            "image-accelerator",
            f"endpoint.image: {endpoint.image!r} is built for GPUs, {endpoint.instance_type} has none, so models run "
            "on the CPU and only with cpu.minWorkers and cpu.maxWorkers; fix: a GPU type such as ml.g5.xlarge, or the "
            "cpu-full image",
        )


def _gpu_misfits(endpoint: Endpoint, image: Image, instance: Instance) -> Iterator[Misfit]:
    if image.accelerator == "cpu":
        yield warning(
            "image-accelerator",
            f"endpoint.image: {endpoint.image!r} is built for CPUs, so the {instance.gpu_name} of "
            f"{endpoint.instance_type} is paid for and idle; fix: image: {_GOOD_IMAGE}, or a CPU type such as "
            "ml.c7i.xlarge",
        )
    if image.cuda_major is not None and not instance.runs_cuda(image.cuda_major):
        yield error(
            "instance-cuda",
            f"endpoint.instance_type: the {instance.gpu_name} of {endpoint.instance_type} is too old for {image.cuda} "
            f"of {endpoint.image!r}; allowed: ml.g4dn, ml.g5 and newer; fix: instance_type: ml.g5.xlarge",
        )
    if endpoint.topology == "multi-model" and not instance.multi_model_gpu_documented:
        yield warning(
            "instance-multi-model",
            f"endpoint.instance_type: {endpoint.instance_type!r} is not among the GPU types that AWS documents for "
            "multi-model endpoints; allowed: one-GPU types of ml.g4dn, ml.g5, ml.p2, ml.p3; fix: take one of these, or "
            "try it before you rely on it",
        )
