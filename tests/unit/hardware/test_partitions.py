"""GPU partitions: which an instance type has, and which fit on one GPU together."""

from __future__ import annotations

import botocore.session
import pytest

from cohost.hardware.instances import INSTANCES
from cohost.hardware.partitions import PROFILES, Slices, fits, memory_mib_of, needed, slices_of, unknown_profiles


def test_the_types_with_partitions_are_hosting_types_with_figures() -> None:
    """Only types of the table of instances have partitions, and no A10G, L4 or L40S does."""
    assert set(PROFILES) <= set(INSTANCES)
    assert {INSTANCES[name].gpu_name for name in PROFILES} == {"A100", "H100", "H200"}


def test_names_have_the_form_of_the_api() -> None:
    """SageMaker would refuse another form before it looks at the GPU."""
    service = botocore.session.get_session().get_service_model("sagemaker")
    pattern = service.shape_for("AcceleratorPartitionType").metadata["pattern"]
    assert pattern == r"mig-[0-9]+g\.[0-9]+gb([+-][a-z0-9.]+)*"
    assert all(name.startswith("mig-") for names in PROFILES.values() for name in names)


@pytest.mark.parametrize("instance_type", PROFILES)
def test_the_whole_gpu_is_the_last_profile(instance_type: str) -> None:
    """Seven compute and all eight memory slices; the memory in its name is the GPU's, rounded."""
    whole = PROFILES[instance_type][-1]
    assert slices_of(whole, instance_type) == Slices(compute=7, memory=8)
    assert fits([whole], instance_type)
    assert memory_mib_of(whole) == pytest.approx(INSTANCES[instance_type].gpu_memory_mib, rel=0.03)


@pytest.mark.parametrize(
    ("profile", "instance_type", "compute", "memory"),
    [
        ("mig-1g.5gb", "ml.p4d.24xlarge", 1, 1),
        ("mig-1g.10gb", "ml.p4d.24xlarge", 1, 2),
        ("mig-3g.20gb", "ml.p4d.24xlarge", 3, 4),
        ("mig-1g.10gb", "ml.p5.48xlarge", 1, 1),
        ("mig-4g.40gb", "ml.p5.48xlarge", 4, 4),
        ("mig-1g.18gb", "ml.p5e.48xlarge", 1, 1),
        ("mig-1g.35gb", "ml.p5en.48xlarge", 1, 2),
        ("mig-3g.71gb", "ml.p5en.48xlarge", 3, 4),
    ],
)
def test_slices_are_nvidias(profile: str, instance_type: str, compute: int, memory: int) -> None:
    """The same name takes another share of another GPU (NVIDIA: Multi-Instance GPU user guide)."""
    assert slices_of(profile, instance_type) == Slices(compute=compute, memory=memory)


@pytest.mark.parametrize(
    ("layout", "fit"),
    [
        (["mig-1g.5gb"] * 7, True),
        (["mig-1g.5gb"] * 8, False),
        (["mig-3g.20gb", "mig-4g.20gb"], True),
        (["mig-3g.20gb", "mig-3g.20gb"], True),
        (["mig-3g.20gb", "mig-3g.20gb", "mig-1g.5gb"], False),
        (["mig-1g.10gb"] * 5, False),
    ],
)
def test_a_layout_needs_slices_of_both_kinds(layout: list[str], fit: bool) -> None:  # noqa: FBT001 - a table
    """Seven compute slices may be free while the memory slices are not, and the other way round."""
    assert fits(layout, "ml.p4d.24xlarge") is fit


def test_a_profile_of_another_gpu_is_unknown() -> None:
    """Profiles do not carry from one family to another, and a type without partitions has none."""
    assert unknown_profiles(["mig-1g.5gb", "mig-1g.10gb"], "ml.p5.48xlarge") == ["mig-1g.5gb"]
    assert unknown_profiles(["mig-1g.5gb", "mig-1g.5gb"], "ml.g5.xlarge") == ["mig-1g.5gb"]
    assert str(needed(["mig-1g.5gb", "mig-2g.10gb"], "ml.p4d.24xlarge")) == "3 compute slices and 3 memory slices"
