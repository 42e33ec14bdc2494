"""The settings of serving.properties for each model, and the changes that make an archive outdated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fakes.refusals import refused
from onnx_exports import DESIGN, MODELS, make_catalog

from cohost.designs.onnx.archive import find_archive
from cohost.designs.onnx.recipe import recipe_for
from cohost.errors import OnnxError

if TYPE_CHECKING:
    from pathlib import Path

    from cohost.designs.onnx.export import Exported

NLI = ["entailment", "neutral", "contradiction"]
MOODS = ["good", "bad"]


@pytest.mark.parametrize(
    ("task", "labels", "serving"),
    [
        ("text-classification", MOODS, "translator"),
        ("text-classification", NLI, "handler"),
        ("zero-shot-classification", NLI, "handler"),
        ("feature-extraction", [], "translator"),
    ],
)
def test_what_is_called_with_pairs_or_labels_gets_the_handler(task: str, labels: list[str], serving: str) -> None:
    """A model for pairs or labels gets the handler, because DJL's translators read single texts."""
    catalog = make_catalog(models={"m": {"model_id": "org/name", "task": task}}, design={})
    assert recipe_for("m", catalog).serving(labels) == serving


def test_the_catalog_has_the_last_word() -> None:
    """A setting of the model overrides the design's."""
    design = {"serving": "handler", "precision": "fp32", "overrides": {"embed": {"serving": "translator"}}}
    catalog = make_catalog(design=design)
    assert recipe_for("embed", catalog).serving([]) == "translator"
    assert recipe_for("xlmr", catalog).serving(MOODS) == "handler"
    assert recipe_for("embed", catalog).precision == "fp32"


def test_a_translator_for_zero_shot_is_refused() -> None:
    """DJL's translator for zero-shot is rejected, because its request body differs from the handler's."""
    with refused("translator-unfit", "designs.cpu-onnx.overrides.bert.serving", kind=OnnxError):
        recipe_for("bert", make_catalog(design={"serving": "translator"}))


def test_archive_of_the_catalog_as_it_is_is_found(exports: dict[str, Exported]) -> None:
    """The archive of the present catalog is found by the checksum in its note."""
    folder = exports["embed"].file.parent
    found = find_archive(folder, recipe_for("embed", make_catalog()))
    assert (found.name, found.sha256, found.file) == ("embed", exports["embed"].sha256, folder / "embed.tar.gz")


@pytest.mark.parametrize(
    ("models", "design", "key"),
    [
        ({"embed": {**MODELS["embed"], "cpu": {"minWorkers": 2, "maxWorkers": 2}}}, {}, "entry"),
        ({"embed": {**MODELS["embed"], "revision": "0" * 40}}, {}, "revision"),
        ({"embed": MODELS["embed"]}, {"precision": "fp32"}, "precision"),
        ({"embed": MODELS["embed"]}, {"serving": "handler"}, "serving"),
    ],
)
def test_archive_of_other_settings_is_refused(
    exports: dict[str, Exported], models: dict[str, Any], design: dict[str, Any], key: str
) -> None:
    """An archive that was exported before a change of the catalog is rejected."""
    recipe = recipe_for("embed", make_catalog(models=models, design=design))
    with refused("export-outdated", str(exports["embed"].file), kind=OnnxError) as caught:
        find_archive(exports["embed"].file.parent, recipe)
    assert caught.value.problem.startswith(f"was exported with another {key} (")


def test_missing_changed_and_foreign_files_are_told(exports: dict[str, Exported], tmp_path: Path) -> None:
    """A deploy rejects an ONNX archive whose checksum differs from the note of its export."""
    recipe = recipe_for("embed", make_catalog(design=DESIGN))
    with refused("export-missing", str(tmp_path / "embed.json"), kind=OnnxError):
        find_archive(tmp_path, recipe)
    note = tmp_path / "embed.json"
    note.write_text(exports["embed"].file.with_name("embed.json").read_text())
    with refused("export-changed", str(tmp_path / "embed.tar.gz"), kind=OnnxError):
        find_archive(tmp_path, recipe)
    (tmp_path / "embed.tar.gz").write_bytes(exports["embed"].file.read_bytes() + b"x")
    with refused("export-changed", kind=OnnxError):
        find_archive(tmp_path, recipe)
    note.write_text(json.dumps({"model": "embed"}))
    with refused("export-note-invalid", str(note), kind=OnnxError):
        find_archive(tmp_path, recipe)
    note.write_text("no json")
    with refused("export-note-invalid", str(note), kind=OnnxError):
        find_archive(tmp_path, recipe)


@pytest.mark.parametrize("value", ["cls", None])
def test_note_with_a_setting_of_another_version_is_refused(tmp_path: Path, value: str | None) -> None:
    """A note with a setting that this version does not know is rejected by that setting."""
    recipe = recipe_for("embed", make_catalog())
    known = recipe.as_data("translator")
    note = {"recipe": {**known, "pooling": value}, "serving": "translator", "sha256": "0"}
    (tmp_path / "embed.json").write_text(json.dumps(note))
    with refused("export-outdated", kind=OnnxError) as caught:
        find_archive(tmp_path, recipe)
    assert f"pooling ({value!r}, now None)" in caught.value.problem


@pytest.mark.parametrize(
    "note", [[], ["recipe", "serving", "sha256"], "text", {"recipe": [], "serving": "translator", "sha256": "0"}]
)
def test_note_of_another_form_is_told(tmp_path: Path, note: object) -> None:
    """A note without recipe or checksum is rejected."""
    (tmp_path / "embed.json").write_text(json.dumps(note))
    with refused("export-note-invalid", str(tmp_path / "embed.json"), kind=OnnxError):
        find_archive(tmp_path, recipe_for("embed", make_catalog()))
