"""The checks between settings of the catalog that do not fit together, and their messages."""

from __future__ import annotations

from typing import Any

import pytest
from synthesis import make_catalog

from cohost.hardware.images import locate_image, parse_image, parse_image_uri
from constructs_lib.checks.findings import Misfit, misfits

VLLM = "vllm:0.26.0-gpu-py312-cu130-ubuntu22.04-sagemaker"
HUGGING_FACE = "huggingface-pytorch-inference:2.6.0-transformers4.49.0-gpu-py312-cu124-ubuntu22.04"
CPU = "djl-inference:0.36.0-cpu-full"
NEURON = "djl-inference:0.30.0-neuronx-sdk2.20.1"


def found(**endpoint: Any) -> list[Misfit]:
    """Return the misfits of an endpoint in us-east-1 with these keys."""
    settings = make_catalog(endpoint=endpoint).endpoint
    uri = parse_image_uri(settings.image_uri) if settings.image_uri else locate_image(settings.image, "us-east-1")
    return misfits(settings, parse_image(settings.image), uri, "us-east-1")


def told(**endpoint: Any) -> set[tuple[str, str]]:
    """Level and name of each misfit."""
    return {(misfit.level, misfit.name) for misfit in found(**endpoint)}


@pytest.mark.parametrize(
    "endpoint",
    [
        {},
        {"instance_type": "ml.g4dn.xlarge"},
        {"image": CPU, "instance_type": "ml.c7i.xlarge"},
        {"image": NEURON, "instance_type": "ml.inf2.xlarge"},
        {"image": "djl-inference:0.32.0-lmi14.0.0-cu126", "instance_type": "ml.p3.2xlarge"},
        {"inference_ami_version": "none"},
        {"inference_ami_version": "al2023-ami-sagemaker-inference-gpu-4-1"},
    ],
)
def test_fitting_settings_raise_nothing(endpoint: dict[str, Any]) -> None:
    """Settings that fit together cause neither an error nor a warning."""
    assert told(**endpoint) == set()


@pytest.mark.parametrize(
    ("endpoint", "misfit"),
    [
        ({"image": HUGGING_FACE}, ("error", "image-backend")),
        ({"image": VLLM}, ("error", "image-multi-model")),
        ({"image": NEURON}, ("error", "image-accelerator")),
        ({"instance_type": "ml.p3.2xlarge"}, ("error", "instance-cuda")),
        (
            {"image_uri": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/lmi:1"},
            ("error", "image-region"),
        ),
        ({"image": CPU}, ("warning", "image-accelerator")),
        ({"instance_type": "ml.c7i.xlarge"}, ("warning", "image-accelerator")),
        ({"instance_type": "ml.g6.xlarge"}, ("warning", "instance-multi-model")),
        ({"instance_type": "ml.g5.12xlarge"}, ("warning", "instance-multi-model")),
        ({"instance_type": "ml.p9.xlarge"}, ("warning", "instance-type")),
        ({"inference_ami_version": "al2-ami-sagemaker-inference-gpu-3-1"}, ("warning", "inference-ami-version")),
    ],
)
def test_misfits_are_found(endpoint: dict[str, Any], misfit: tuple[str, str]) -> None:
    """Each pair of settings that cannot work is an error, and each pair that may not work is a warning."""
    assert misfit in told(**endpoint)


def test_every_message_names_field_and_way_out() -> None:
    """Each message is one line with the field, the value, the allowed values and the fix."""
    cases: list[dict[str, Any]] = [
        {"image": VLLM},
        {"image": NEURON},
        {"image": CPU},
        {"instance_type": "ml.p2.xlarge"},
        {"instance_type": "ml.p9.xlarge"},
        {"instance_type": "ml.c7i.xlarge"},
        {"inference_ami_version": "al2-ami-sagemaker-inference-gpu-3-1"},
        {"image_uri": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/lmi:1"},
    ]
    messages = {(misfit.level, misfit.message) for case in cases for misfit in found(**case)}
    for level, message in messages:
        assert message.startswith("endpoint."), message
        assert "\n" not in message
        assert "; fix: " in message, message
        assert level == "warning" or "; allowed: " in message, message


def test_unknown_instance_type_is_no_error() -> None:
    """An instance type that is in no table is accepted, because AWS may have newer types."""
    assert {level for level, _ in told(instance_type="ml.g9.xlarge")} == {"warning"}
