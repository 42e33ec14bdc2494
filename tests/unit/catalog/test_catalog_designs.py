"""The comparison designs in the catalog: defaults and rejected settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.catalog_file import load_catalog
from cohost.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

BASE = """
endpoint: {name: lmi-cohost, instance_type: ml.g5.xlarge, image: "djl-inference:0.36.0-lmi26.0.0-cu130"}
models:
  nli: {model_id: org/name, task: text-classification, required_memory_mb: 1024}
"""


def test_a_design_that_is_not_named_is_not_there(tmp_path: Path) -> None:
    """Only designs that the catalog names are built; a design without settings has its defaults."""
    file = tmp_path / "catalog.yaml"
    file.write_text(BASE)
    assert load_catalog(file).catalog.designs is None
    file.write_text(BASE + "designs: {cpu-onnx: {}}\n")
    designs = load_catalog(file).catalog.designs
    assert designs is not None
    assert designs.inference_components is None
    assert designs.cpu_onnx is not None
    assert (designs.cpu_onnx.precision, designs.cpu_onnx.image) == ("int8", "djl-inference:0.36.0-cpu-full")


@pytest.mark.parametrize(
    ("designs", "code", "field"),
    [
        ("cpu-onnx: {overrides: {typo: {precision: fp32}}}", "model-not-in-catalog", "cpu-onnx.overrides.typo"),
        ("cpu-onnx: {precision: int4}", "value-not-allowed", "cpu-onnx.precision"),
        ("cpu_onx: {}", "key-unknown", "cpu_onx"),
        (
            "inference-components: {partitions: {nli: mig-1g.10gb+me}}",
            "value-not-allowed",
            "inference-components.partitions.nli",
        ),
        (
            "inference-components: {partitions: {nli: mig-1g.10gb, typo: mig-1g.10gb}}",
            "model-not-in-catalog",
            "inference-components.partitions.typo",
        ),
        (
            "inference-components: {min_instance_count: 3}",
            "bounds-crossed",
            "inference-components.max_instance_count",
        ),
    ],
)
def test_faults_name_their_place(tmp_path: Path, designs: str, code: str, field: str) -> None:
    """The error of an unknown key, an unknown model or a wrong value under `designs` names its field."""
    file = tmp_path / "catalog.yaml"
    file.write_text(f"{BASE}designs:\n  {designs}\n")
    with refused(code, f"designs.{field}", kind=CatalogError):
        load_catalog(file)


def test_every_model_has_a_partition_or_none_has(tmp_path: Path) -> None:
    """SageMaker refuses a component without one on an endpoint with partitions."""
    file = tmp_path / "catalog.yaml"
    other = "  mini: {model_id: org/mini, task: text-classification, required_memory_mb: 1024}\n"
    file.write_text(f"{BASE}{other}designs: {{inference-components: {{partitions: {{nli: mig-1g.10gb}}}}}}\n")
    with refused("partition-missing", "designs.inference-components.partitions", kind=CatalogError):
        load_catalog(file)


def test_the_order_of_the_catalog_is_not_the_order_of_the_layout(tmp_path: Path) -> None:
    """SageMaker takes another order as another layout, which a living endpoint cannot get."""
    file = tmp_path / "catalog.yaml"
    other = "  mini: {model_id: org/mini, task: text-classification, required_memory_mb: 1024}\n"
    for partitions in ("nli: mig-3g.40gb, mini: mig-1g.10gb", "mini: mig-1g.10gb, nli: mig-3g.40gb"):
        file.write_text(f"{BASE}{other}designs: {{inference-components: {{partitions: {{{partitions}}}}}}}\n")
        designs = load_catalog(file).catalog.designs
        assert designs is not None
        assert designs.inference_components is not None
        assert designs.inference_components.layout == ["mig-1g.10gb", "mig-3g.40gb"]
