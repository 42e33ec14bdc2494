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
