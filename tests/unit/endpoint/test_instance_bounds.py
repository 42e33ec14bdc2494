"""The least and most instances of a catalog's scaling settings."""

from __future__ import annotations

from typing import Any

import pytest

from cohost.catalog.models import Catalog
from cohost.catalog.serving import instance_bounds, instances_for


def bounds(scaling: dict[str, Any] | None = None, **endpoint: Any) -> tuple[int, int]:
    """Return the bounds of a catalog with these settings."""
    base = {"name": "e", "instance_type": "ml.g5.xlarge", "image": "djl-inference:0.36.0-lmi26.0.0-cu130"}
    data: dict[str, Any] = {
        "endpoint": base | endpoint,
        "models": {"nli": {"model_id": "org/nli", "task": "text-classification"}},
    }
    return instance_bounds(Catalog.model_validate(data if scaling is None else data | {"scaling": scaling}))


def test_without_scaling_the_number_is_fixed() -> None:
    """Without scaling the instance count of the catalog is both the minimum and the maximum."""
    assert bounds(initial_instance_count=3) == (3, 3)


def test_multi_model_scales_instances() -> None:
    """The bounds of a multi-model catalog are instances, including those of its schedule."""
    schedule = [{"name": "day", "cron": "rate(1 day)", "max": 6}]
    assert bounds({"min": 1, "max": 4, "schedule": schedule}) == (1, 6)


def test_scale_to_zero_scales_copies_that_share_gpus() -> None:
    """Scale-to-zero has a minimum of 0 instances, and a maximum by the number of copies that share one."""
    assert bounds(topology="scale-to-zero") == (0, 1)
    assert bounds({"max": 9}, topology="scale-to-zero", instance_type="ml.g5.12xlarge") == (0, 3)


@pytest.mark.parametrize(
    ("instance_type", "expected"), [("ml.g5.xlarge", 3), ("ml.g5.12xlarge", 1), ("ml.c7i.xlarge", 3), ("ml.x9.huge", 3)]
)
def test_copy_takes_a_gpu_or_an_instance(instance_type: str, expected: int) -> None:
    """Each copy counts as one instance if the type has no GPU or is unknown."""
    assert instances_for(3, instance_type) == expected
