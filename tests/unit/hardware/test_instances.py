"""The table of instance types, compared with independent copies of the same figures."""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from typing import Any

import botocore.session
import pytest

from cohost.hardware.instances import INSTANCES

# No longer in EC2's own list of the copy that moto carries.
RETIRED = ("ml.p2.", "ml.p3.")


@pytest.fixture(scope="module")
def ec2() -> dict[str, dict[str, Any]]:
    """EC2's DescribeInstanceTypes, as recorded in moto."""
    packed = files("moto.ec2").joinpath("resources/instance_types.json.gz").read_bytes()
    types: dict[str, dict[str, Any]] = json.loads(gzip.decompress(packed))
    return types


def test_product_instance() -> None:
    """ml.g5.xlarge, which the memory plan and the price rest on."""
    instance = INSTANCES["ml.g5.xlarge"]
    assert (instance.vcpus, instance.memory_mib) == (4, 16384)
    assert (instance.gpus, instance.gpu_name, instance.gpu_memory_mib) == (1, "A10G", 22888)
    assert instance.multi_model_gpu_documented


def test_processors_and_memory_equal_ec2s(ec2: dict[str, dict[str, Any]]) -> None:
    """Each number of vCPUs and each memory in the table equals EC2's."""
    for name, instance in INSTANCES.items():
        if name.startswith(RETIRED):
            continue
        told = ec2[name.removeprefix("ml.")]
        assert instance.vcpus == told["VCpuInfo"]["DefaultVCpus"], name
        assert instance.memory_mib == told["MemoryInfo"]["SizeInMiB"], name


def test_gpus_equal_ec2s(ec2: dict[str, dict[str, Any]]) -> None:
    """GPU name, count and memory are EC2's; a CPU type has none."""
    for name, instance in INSTANCES.items():
        if name.startswith(RETIRED):
            continue
        told = ec2[name.removeprefix("ml.")].get("GpuInfo", {"Gpus": []})["Gpus"]
        assert [(gpu["Name"], gpu["Count"], gpu["MemoryInfo"]["SizeInMiB"]) for gpu in told] == (
            [(instance.gpu_name, instance.gpus, instance.gpu_memory_mib)] if instance.gpus else []
        ), name


def test_every_type_can_host() -> None:
    """Each type in the table is valid for a production variant of SageMaker."""
    shape = botocore.session.get_session().get_service_model("sagemaker").shape_for("ProductionVariantInstanceType")
    assert set(INSTANCES) <= set(shape.enum)


def test_multi_model_gpu_types_are_the_documented_ones() -> None:
    """The multi-model GPU types are those of AWS: one-GPU types of p2, p3, g4dn and g5, not g6."""
    documented = {name for name, instance in INSTANCES.items() if instance.multi_model_gpu_documented}
    assert documented == {
        "ml.p2.xlarge",
        "ml.p3.2xlarge",
        *(f"ml.g5.{size}" for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")),
        *(f"ml.g4dn.{size}" for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")),
    }


@pytest.mark.parametrize(
    ("name", "cuda_major", "runs"),
    [
        ("ml.g5.xlarge", 13, True),
        ("ml.g4dn.xlarge", 13, True),
        ("ml.p3.2xlarge", 13, False),
        ("ml.p3.2xlarge", 12, True),
        ("ml.p2.xlarge", 12, False),
        ("ml.c7i.xlarge", 13, True),
        ("ml.p2.xlarge", 11, True),
    ],
)
def test_old_gpus_are_not_run_by_new_cuda(name: str, cuda_major: int, runs: bool) -> None:  # noqa: FBT001 - a table
    """CUDA 13 with Volta, and CUDA 12 with Kepler, is rejected."""
    assert INSTANCES[name].runs_cuda(cuda_major) is runs
