"""Look up the server images that can run archives: their properties by `repository:tag`, and their URIs by region.

The module holds dated tables and does not use the network. Backends and labels are from the Dockerfiles of DJL Serving
0.36.0, and of earlier versions for flavours that were discontinued. Accounts and URL suffixes are from
`aws_cdk.region_info` of aws-cdk-lib 2.275.0; for the regions that it lacks, they are from the page "Available Images"
of AWS Deep Learning Containers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal

from cohost.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Mapping


Flavour = Literal["lmi", "cpu-full", "tensorrtllm", "neuronx", "deepspeed", "vllm", "huggingface"]
Accelerator = Literal["cpu", "gpu", "neuron"]

TABLES_DATED: Final = "2026-11-30"

# The account that holds the AWS Deep Learning Containers, by region, from region_info.
_REGION_INFO_ACCOUNTS: Final[Mapping[str, str]] = {
    "ap-east-1": "871362719292",
    "ap-east-2": "975050140332",
    "ap-northeast-1": "763104351884",
    "ap-northeast-2": "763104351884",
    "ap-south-1": "763104351884",
    "ap-south-2": "772153158452",
    "ap-southeast-1": "763104351884",
    "ap-southeast-2": "763104351884",
    "ap-southeast-3": "907027046896",
    "ap-southeast-4": "457447274322",
    "ap-southeast-6": "633930458069",
    "ca-central-1": "763104351884",
    "cn-north-1": "727897471807",
    "cn-northwest-1": "727897471807",
    "eu-central-1": "763104351884",
    "eu-central-2": "380420809688",
    "eu-north-1": "763104351884",
    "eu-south-1": "692866216735",
    "eu-south-2": "503227376785",
    "eu-west-1": "763104351884",
    "eu-west-2": "763104351884",
    "eu-west-3": "763104351884",
    "eusc-de-east-1": "204133271717",
    "me-central-1": "914824155844",
    "me-south-1": "217643126080",
    "sa-east-1": "763104351884",
    "us-east-1": "763104351884",
    "us-east-2": "763104351884",
    "us-isof-east-1": "303241398832",
    "us-isof-south-1": "454834333376",
    "us-west-1": "763104351884",
    "us-west-2": "763104351884",
}

# The accounts of regions that region_info lacks, from "Available Images" and the SageMaker Python SDK's tables.
_FURTHER_ACCOUNTS: Final[Mapping[str, str]] = {
    "af-south-1": "626614931356",
    "ap-northeast-3": "364406365360",
    "ap-southeast-5": "550225433462",
    "ap-southeast-7": "590183813437",
    "ca-west-1": "204538143572",
    "il-central-1": "780543022126",
    "mx-central-1": "637423239942",
    "us-gov-east-1": "446045086412",
    "us-gov-west-1": "442386744353",
}

ACCOUNTS: Final[Mapping[str, str]] = {**_REGION_INFO_ACCOUNTS, **_FURTHER_ACCOUNTS}

# The domains of partitions whose host names do not end in amazonaws.com, by the beginning of the region's name.
_URL_SUFFIXES: Final[Mapping[str, str]] = {
    "cn": "amazonaws.com.cn",
    "eusc": "amazonaws.eu",
    "us-isof": "csp.hci.ic.gov",
}

# The InferenceAmiVersion by CUDA major version: it has GPU driver 580 for CUDA 13, 550 for CUDA 12 (AWS: API reference,
# InferenceAmiVersion of ProductionVariant).
_AMI_VERSIONS: Final[Mapping[int, str]] = {
    12: "al2-ami-sagemaker-inference-gpu-3-1",
    13: "al2023-ami-sagemaker-inference-gpu-4-1",
}


@dataclass(frozen=True, kw_only=True)
class Image:
    """The known properties of a server image.

    `backends` are the engines that a serving.properties may select, in lower case ("python" runs Hugging Face models).
    `cuda` is the CUDA version in the tag, such as "cu130", or None. `multi_model` is true if the image has the label
    that SageMaker requires of a container for multi-model endpoints. `version` is the first part of the tag.
    """

    repository: str
    tag: str
    version: str
    flavour: Flavour
    backends: frozenset[str]
    accelerator: Accelerator
    cuda: str | None
    multi_model: bool

    @property
    def cuda_major(self) -> int | None:
        """Return the image's major version of CUDA, such as 13 for cu130; None for an image without CUDA."""
        return None if self.cuda is None else int(self.cuda[2:4])


@dataclass(frozen=True, kw_only=True)
class ImageUri:
    """The parts of an image URI in a private registry of Amazon ECR; `reference` is ":tag" or "@digest"."""

    account: str
    region: str
    suffix: str
    repository: str
    reference: str

    def __str__(self) -> str:
        """Return the whole URI: "<account>.dkr.ecr.<region>.<suffix>/<repository>:<tag>"."""
        return f"{self.account}.dkr.ecr.{self.region}.{self.suffix}/{self.repository}{self.reference}"


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """One flavour of images in a repository: the pattern of its tags, and the properties of its images."""

    repository: str
    flavour: Flavour
    tag: re.Pattern[str]
    backends: frozenset[str]
    accelerator: Accelerator
    multi_model: bool = True


_REVISION: Final = r"(?:-v\d+(?:\.\d+)*)?"
_VERSION: Final = r"(?P<version>\d+\.\d+\.\d+)"


def _djl(flavour: Flavour, build: str, accelerator: Accelerator, *backends: str) -> _Kind:
    return _Kind(
        repository="djl-inference",
        flavour=flavour,
        tag=re.compile(rf"{_VERSION}-{build}{_REVISION}"),
        backends=frozenset({"python", *backends}),
        accelerator=accelerator,
    )


_KINDS: Final = (
    _djl("lmi", r"lmi\d+\.\d+\.\d+-(?P<cuda>cu\d{3})", "gpu", "vllm", "pytorch", "onnxruntime"),
    _djl("cpu-full", "cpu-full", "cpu", "pytorch", "onnxruntime", "xgboost"),
    _djl("tensorrtllm", r"tensorrtllm\d+\.\d+\.\d+-(?P<cuda>cu\d{3})", "gpu", "trtllm"),
    _djl("neuronx", r"neuronx-sdk\d+\.\d+\.\d+", "neuron", "neuronx"),
    _djl("deepspeed", r"deepspeed\d+\.\d+\.\d+-(?P<cuda>cu\d{3})", "gpu", "deepspeed"),
    # vllm and huggingface do not run serving.properties archives; they are listed for a clear error message.
    _Kind(
        repository="vllm",
        flavour="vllm",
        tag=re.compile(rf"{_VERSION}-gpu-py\d+-(?P<cuda>cu\d{{3}})(?:-[\w.]+)*"),
        backends=frozenset({"vllm"}),
        accelerator="gpu",
        multi_model=False,
    ),
    _Kind(
        repository="huggingface-pytorch-inference",
        flavour="huggingface",
        tag=re.compile(rf"{_VERSION}-transformers[\d.]+-gpu-py\d+-(?P<cuda>cu\d{{3}})(?:-[\w.]+)*"),
        backends=frozenset(),
        accelerator="gpu",
    ),
    _Kind(
        repository="huggingface-pytorch-inference",
        flavour="huggingface",
        tag=re.compile(rf"{_VERSION}-transformers[\d.]+-cpu-py\d+(?:-[\w.]+)*"),
        backends=frozenset(),
        accelerator="cpu",
    ),
)

_ECR_URI: Final = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z]+(?:-[a-z]+)+-\d)\.(?P<suffix>[a-z]+(?:[.-][a-z]+)+)"
    r"/(?P<repository>[a-z0-9]+(?:[._/-][a-z0-9]+)*)(?P<reference>:[\w][\w.-]{0,127}|@sha256:[0-9a-f]{64})"
)

_EXAMPLES: Final = "djl-inference:0.36.0-lmi26.0.0-cu130 or djl-inference:0.36.0-cpu-full"


def parse_image(reference: str) -> Image:
    """Return the properties of an image by `repository:tag`, such as "djl-inference:0.36.0-lmi26.0.0-cu130".

    Raises:
        ImageError: the reference is not `repository:tag`, or no known repository has tags of this form.
    """
    repository, _, tag = reference.partition(":")
    kinds = [kind for kind in _KINDS if kind.repository == repository]
    if not kinds or not tag:
        known = ", ".join(sorted({kind.repository for kind in _KINDS}))
        fix = f"write {_EXAMPLES}, and put an image of your own under image_uri beside the one it was built from"
        raise ImageError("image-unknown", "image", f"got {reference!r}", allowed=f"repository:tag of {known}", fix=fix)
    for kind in kinds:
        if match := kind.tag.fullmatch(tag):
            return _image(kind, tag, match)
    problem = f"got tag {tag!r}, which is not one of {repository}'s"
    raise ImageError("image-tag-unknown", "image", problem, fix=f"write a full tag such as {_EXAMPLES}")


def _image(kind: _Kind, tag: str, match: re.Match[str]) -> Image:
    return Image(
        repository=kind.repository,
        tag=tag,
        version=match["version"],
        flavour=kind.flavour,
        backends=kind.backends,
        accelerator=kind.accelerator,
        cuda=match.groupdict().get("cuda"),
        multi_model=kind.multi_model,
    )


def registry_account(region: str) -> str:
    """Return the AWS account whose registry has the AWS Deep Learning Containers of a region.

    Raises:
        ImageError: the tables of accounts do not contain the region.
    """
    if (account := ACCOUNTS.get(region)) is None:
        raise ImageError(
            "region-unknown",
            "region",
            f"{region!r} has no known account of AWS Deep Learning Containers (table of {TABLES_DATED})",
            allowed=f"a region of the table; near it: {', '.join(_near(region))}",
            fix="deploy there, or name the image in full under image_uri",
        )
    return account


def locate_image(reference: str, region: str) -> ImageUri:
    """Return the parts of the URI that an AWS image has in a region.

    Raises:
        ImageError: the reference cannot be read, or the region has no known account.
    """
    image = parse_image(reference)
    return ImageUri(
        account=registry_account(region),
        region=region,
        suffix=url_suffix(region),
        repository=image.repository,
        reference=f":{image.tag}",
    )


def image_uri(reference: str, region: str) -> str:
    """Return the URI of an AWS image in a region: "<account>.dkr.ecr.<region>.<suffix>/<repository>:<tag>".

    Raises:
        ImageError: the reference cannot be read, or the region has no known account.
    """
    return str(locate_image(reference, region))


def parse_image_uri(uri: str) -> ImageUri:
    """Return the parts of a full image URI with a tag or a digest.

    Raises:
        ImageError: the URI is not in a private Amazon ECR registry, the only kind from which SageMaker pulls without a
            VPC.
    """
    if (match := _ECR_URI.fullmatch(uri)) is None:
        allowed = "an image in Amazon ECR: <account>.dkr.ecr.<region>.<suffix>/<repository>:<tag>"
        fix = "push the image to ECR and name it so"
        raise ImageError("image-not-in-ecr", "image_uri", f"got {uri!r}", allowed=allowed, fix=fix)
    return ImageUri(**match.groupdict())


def url_suffix(region: str) -> str:
    """Return the domain of AWS's services in a region, such as "amazonaws.com" or "amazonaws.com.cn"."""
    for start, suffix in _URL_SUFFIXES.items():
        if region.startswith(f"{start}-"):
            return suffix
    return "amazonaws.com"


def default_inference_ami_version(image: Image) -> str | None:
    """Return the InferenceAmiVersion whose GPU driver fits the image's CUDA version.

    Return None, so that SageMaker's default applies, for an image without CUDA or with a CUDA version that the table
    lacks.
    """
    return None if image.cuda_major is None else _AMI_VERSIONS.get(image.cuda_major)


def _near(region: str) -> list[str]:
    area = region.split("-", maxsplit=1)[0]
    close = get_close_matches(region, ACCOUNTS, n=3, cutoff=0.7)
    same_area = [known for known in sorted(ACCOUNTS) if known.startswith(f"{area}-") and known not in close]
    return (close + same_area)[:5] or ["us-east-1", "eu-west-1", "ap-northeast-1"]
