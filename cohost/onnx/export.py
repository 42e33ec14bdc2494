"""From a catalog's model to an archive: export, quantize, check against torch, pack. Imports torch and onnxruntime."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cohost.onnx.archive import archive_file, members, note_file
from cohost.onnx.check import compare, require
from cohost.onnx.graph import DATA_FILE, MODEL_FILE, quantize, strip
from cohost.onnx.packing import pack_files
from cohost.onnx.properties import properties_for
from cohost.onnx.session import Session
from cohost.onnx.source import model_folder
from cohost.onnx.torch_model import TorchModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cohost.catalog.sections.designs import Precision, Serving
    from cohost.onnx.check import Agreement
    from cohost.onnx.recipe import Recipe

STEPS: Final = ("loading", "exporting", "checking", "packing")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What became of one model: its archive, how it is served, and how far it is from torch."""

    name: str
    file: Path
    sha256: str
    size: int
    precision: Precision
    serving: Serving
    limit: int
    agreement: Agreement

    def as_data(self) -> dict[str, Any]:
        """The same as plain values, without where the archive lies."""
        return {
            "model": self.name,
            "precision": self.precision,
            "serving": self.serving,
            "max_length": self.limit,
            "sha256": self.sha256,
            "bytes": self.size,
            "agreement": self.agreement.as_data(),
        }


def export_model(recipe: Recipe, out: Path, hubs: Sequence[Path], step: Callable[[str], None]) -> Exported:
    """Export one model into `out`: its archive, and beside it a note of what it is.

    Args:
        recipe: the model and how it is to be served.
        out: the folder, made where it is missing.
        hubs: folders that hold models as org/name.
        step: called with each of STEPS as it begins.

    Raises:
        OnnxError: the model cannot be had, exported or written, or its export is not as good as its precision allows;
            then no archive of it is left.
    """
    step("loading")
    model = TorchModel(model_folder(recipe.entry.model_id, recipe.entry.revision, hubs), recipe.entry.task)
    with tempfile.TemporaryDirectory(prefix="cohost-onnx-") as scratch:
        step("exporting")
        folder = _written(model, recipe.precision, Path(scratch))
        step("checking")
        agreement = compare(model, Session(folder / MODEL_FILE))
        require(recipe.name, recipe.precision, agreement)
        step("packing")
        return _packed(recipe, model, folder, agreement, out)


def _written(model: TorchModel, precision: Precision, scratch: Path) -> Path:
    """The folder with the model's ONNX file, in its precision, and what the tokenizer and the translator read."""
    folder, single = scratch / "served", scratch / "fp32"
    for made in (folder, single):
        made.mkdir()
    target = folder if precision == "fp32" else single
    model.export(target / MODEL_FILE)
    strip(target / MODEL_FILE)
    if precision == "int8":
        quantize(single / MODEL_FILE, folder / MODEL_FILE)
    model.tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    model.tokenizer.save_pretrained(scratch / "tokenizer")
    (scratch / "tokenizer" / "tokenizer_config.json").replace(folder / "tokenizer_config.json")
    (folder / "config.json").write_text(_config_text(model), encoding="utf-8")
    return folder


def _config_text(model: TorchModel) -> str:
    """The model's configuration, with labels as DJL's translator looks them up: by the number as text."""
    config = model.config.to_dict()
    if model.labels:
        config["id2label"] = {str(index): label for index, label in enumerate(model.labels)}
    config.pop("_name_or_path", None)
    return json.dumps(config, indent=2, sort_keys=True, default=str) + "\n"


def _packed(recipe: Recipe, model: TorchModel, folder: Path, agreement: Agreement, out: Path) -> Exported:
    serving = recipe.serving(model.labels)
    properties = properties_for(
        recipe.entry.task, serving, recipe.settings(serving), limit=model.limit, inputs=model.input_names
    )
    parts = ("config.json", "tokenizer.json", "tokenizer_config.json", MODEL_FILE, DATA_FILE)
    files = {name: folder / name for name in parts if (folder / name).is_file()}
    note, file = note_file(out, recipe.name), archive_file(out, recipe.name)
    # A note of an older archive must not stand beside a newer one.
    note.unlink(missing_ok=True)
    digest = pack_files(members(files, properties, serving), file)
    exported = Exported(
        name=recipe.name,
        file=file,
        sha256=digest,
        size=file.stat().st_size,
        precision=recipe.precision,
        serving=serving,
        limit=model.limit,
        agreement=agreement,
    )
    content = {**exported.as_data(), "recipe": recipe.as_data(serving)}
    note.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return exported
