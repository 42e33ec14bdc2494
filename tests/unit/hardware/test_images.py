"""The parts of an image reference, and the address of an image in a region."""

from __future__ import annotations

import pytest
from fakes.refusals import refused

from cohost.errors import ImageError
from cohost.hardware.images import (
    ACCOUNTS,
    default_inference_ami_version,
    image_uri,
    parse_image,
    parse_image_uri,
    registry_account,
    url_suffix,
)

LMI = "djl-inference:0.36.0-lmi26.0.0-cu130"


def test_lmi_tag_names_python_backend_and_cuda() -> None:
    """The product's image is read as an lmi image: Python backend, CUDA 13.0, multi-model label."""
    image = parse_image(LMI)
    assert (image.repository, image.tag, image.version) == ("djl-inference", "0.36.0-lmi26.0.0-cu130", "0.36.0")
    assert (image.flavour, image.accelerator, image.cuda, image.cuda_major) == ("lmi", "gpu", "cu130", 13)
    assert image.multi_model
    assert "python" in image.backends


def test_cpu_full_tag_has_no_cuda() -> None:
    """The CPU image has the Python backend too, and no CUDA."""
    image = parse_image("djl-inference:0.36.0-cpu-full")
    assert (image.flavour, image.accelerator, image.cuda, image.cuda_major) == ("cpu-full", "cpu", None, None)
    assert image.multi_model
    assert "python" in image.backends


def test_only_the_tensorrtllm_tag_has_trtllm() -> None:
    """A model that asks for TensorRT-LLM is served by that flavour alone."""
    tags = [LMI, "djl-inference:0.36.0-cpu-full", "djl-inference:0.33.0-tensorrtllm0.21.0-cu128"]
    assert ["trtllm" in parse_image(tag).backends for tag in tags] == [False, False, True]


@pytest.mark.parametrize(
    ("reference", "flavour", "cuda"),
    [
        ("djl-inference:0.36.0-lmi27.0.0-cu130-v1.1", "lmi", "cu130"),
        ("djl-inference:0.32.0-lmi14.0.0-cu126", "lmi", "cu126"),
        ("djl-inference:0.30.0-neuronx-sdk2.20.1", "neuronx", None),
        ("djl-inference:0.27.0-deepspeed0.12.6-cu121", "deepspeed", "cu121"),
        ("vllm:0.26.0-gpu-py312-cu130-ubuntu22.04-sagemaker-v1.1", "vllm", "cu130"),
        ("huggingface-pytorch-inference:2.6.0-transformers4.49.0-gpu-py312-cu124-ubuntu22.04", "huggingface", "cu124"),
        ("huggingface-pytorch-inference:2.6.0-transformers4.49.0-cpu-py312-ubuntu22.04", "huggingface", None),
    ],
)
def test_published_tags_are_read(reference: str, flavour: str, cuda: str | None) -> None:
    """Old and new image tags of AWS are parsed."""
    image = parse_image(reference)
    assert (image.flavour, image.cuda) == (flavour, cuda)


def test_vllm_image_has_neither_the_label_nor_python() -> None:
    """The vLLM image is known as one that cannot serve several archives."""
    image = parse_image("vllm:0.26.0-gpu-py312-cu130-ubuntu22.04-sagemaker")
    assert not image.multi_model
    assert "python" not in image.backends


@pytest.mark.parametrize("reference", ["triton:24.01", "djl-inference", "djl-inference:", "", ":0.36.0", "a:b:c"])
def test_unknown_repository_is_refused_with_the_way_out(reference: str) -> None:
    """An image of an unknown repository is rejected with the key image_uri for own images."""
    with refused("image-unknown", "image", kind=ImageError) as caught:
        parse_image(reference)
    assert "image_uri" in caught.value.fix


@pytest.mark.parametrize("tag", ["latest", "0.36.0-lmi", "0.36.0-lmi26.0.0-cu13", "0.36.0-lmi26.0.0-cu130 ", "lmi"])
def test_unparsable_tag_is_refused(tag: str) -> None:
    """A tag that does not describe the image's content is rejected."""
    with refused("image-tag-unknown", "image", kind=ImageError):
        parse_image(f"djl-inference:{tag}")


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east-1", "763104351884.dkr.ecr.us-east-1.amazonaws.com"),
        ("ap-northeast-2", "763104351884.dkr.ecr.ap-northeast-2.amazonaws.com"),
        ("il-central-1", "780543022126.dkr.ecr.il-central-1.amazonaws.com"),
        ("us-gov-west-1", "442386744353.dkr.ecr.us-gov-west-1.amazonaws.com"),
        ("us-gov-east-1", "446045086412.dkr.ecr.us-gov-east-1.amazonaws.com"),
        ("cn-north-1", "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn"),
        ("eusc-de-east-1", "204133271717.dkr.ecr.eusc-de-east-1.amazonaws.eu"),
    ],
)
def test_uri_carries_the_regions_account_and_suffix(region: str, host: str) -> None:
    """The image URI of each region has the region's account and its partition's domain."""
    assert image_uri(LMI, region) == f"{host}/{LMI}"


def test_unknown_region_stops_with_near_ones_and_the_override() -> None:
    """The error for an unknown region has the nearest regions and the key for an own image."""
    with refused("region-unknown", "region", kind=ImageError) as caught:
        registry_account("eu-central-9")
    assert "eu-central-1" in caught.value.allowed
    assert "image_uri" in caught.value.fix


def test_region_of_no_known_area_still_names_some() -> None:
    """A region unlike any other still gets an answer with regions to choose from."""
    with refused("region-unknown", "region") as caught:
        image_uri(LMI, "moon-1")
    assert "us-east-1" in caught.value.allowed


@pytest.mark.parametrize("reference", [":mine-1", f"@sha256:{'0' * 64}"])
def test_uri_of_ones_own_image_is_read(reference: str) -> None:
    """The URI of an own image gives account, region and repository for the right to pull."""
    uri = f"123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/lmi{reference}"
    parsed = parse_image_uri(uri)
    assert (parsed.account, parsed.region, parsed.repository) == ("123456789012", "eu-west-1", "team/lmi")
    assert str(parsed) == uri


def test_located_uri_is_read_back() -> None:
    """A URI that this project builds can be parsed again."""
    uri = image_uri(LMI, "cn-north-1")
    assert str(parse_image_uri(uri)) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "public.ecr.aws/deep-learning-containers/djl:1",
        "docker.io/deepjavalibrary/djl-serving:0.36.0",
        "123456789012.dkr.ecr.eu-west-1.amazonaws.com/lmi",
        "123.dkr.ecr.eu-west-1.amazonaws.com/lmi:1",
    ],
)
def test_image_outside_ecr_is_refused(uri: str) -> None:
    """An image outside private ECR, or without a tag, is rejected."""
    with refused("image-not-in-ecr", "image_uri", kind=ImageError):
        parse_image_uri(uri)


@pytest.mark.parametrize(
    ("reference", "version"),
    [
        (LMI, "al2023-ami-sagemaker-inference-gpu-4-1"),
        ("djl-inference:0.36.0-lmi24.0.0-cu129", "al2-ami-sagemaker-inference-gpu-3-1"),
        ("djl-inference:0.32.0-lmi14.0.0-cu126", "al2-ami-sagemaker-inference-gpu-3-1"),
        ("djl-inference:0.36.0-cpu-full", None),
    ],
)
def test_host_driver_follows_the_cuda_of_the_image(reference: str, version: str | None) -> None:
    """CUDA 13 gets driver 580 and CUDA 12 driver 550, because a wrong pair hangs in Creating."""
    assert default_inference_ami_version(parse_image(reference)) == version


@pytest.mark.process
def test_accounts_equal_region_info() -> None:
    """The listed accounts and suffixes equal the CDK's region_info."""
    region_info = pytest.importorskip("aws_cdk.region_info")
    for region in region_info.RegionInfo.regions:
        account = region_info.Fact.find(region.name, region_info.FactName.DLC_REPOSITORY_ACCOUNT)
        if account is not None:
            assert ACCOUNTS.get(region.name) == account, region.name
        if region.name in ACCOUNTS:
            assert url_suffix(region.name) == region.domain_suffix, region.name
