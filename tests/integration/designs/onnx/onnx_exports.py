"""Exports of tiny models: with the translator and with the handler, in fp32 and int8."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cohost.catalog.models import Catalog
from cohost.designs.onnx.export import export_model
from cohost.designs.onnx.recipe import recipe_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cohost.designs.onnx.export import Exported

HUB = Path(__file__).parents[4] / "local_aws" / "data" / "hub"
MODELS = {
    "bert": {"model_id": "lmi-cohost/tiny-minilm-nli", "task": "zero-shot-classification"},
    "deberta": {"model_id": "lmi-cohost/tiny-mdeberta-nli", "task": "text-classification"},
    "embed": {"model_id": "lmi-cohost/tiny-embed", "task": "feature-extraction"},
    "xlmr": {"model_id": "lmi-cohost/tiny-xlmr-nli", "task": "text-classification"},
}
DESIGN = {
    "overrides": {"xlmr": {"serving": "translator", "precision": "fp32"}, "bert": {"precision": "fp32"}},
}


def make_catalog(*, models: Mapping[str, Any] = MODELS, design: Mapping[str, Any] = DESIGN) -> Catalog:
    """A catalog with a CPU design."""
    image = "djl-inference:0.36.0-lmi26.0.0-cu130"
    return Catalog.model_validate(
        {
            "endpoint": {"name": "lmi-cohost", "instance_type": "ml.g5.xlarge", "image": image},
            "models": models,
            "designs": {"cpu-onnx": design},
        }
    )


def export(name: str, out: Path, catalog: Catalog | None = None) -> Exported:
    """Export one model of a catalog."""
    return export_model(recipe_for(name, catalog or make_catalog()), out, [HUB], lambda _: None)


class Exports(dict[str, "Exported"]):
    """The ONNX export of each model, made when a test first asks for it."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self._out = out

    def __missing__(self, name: str) -> Exported:
        """Exports the model."""
        self[name] = export(name, self._out)
        return self[name]


class Folders(dict[str, Path]):
    """The archive of each model, unpacked when a test first asks for it."""

    def __init__(self, exports: Exports, root: Path) -> None:
        super().__init__()
        self._exports, self._root = exports, root

    def __missing__(self, name: str) -> Path:
        """Unpacks the archive."""
        with tarfile.open(self._exports[name].file) as archive:
            archive.extractall(self._root / name, filter="data")
        self[name] = self._root / name
        return self[name]
