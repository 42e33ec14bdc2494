"""The command `cohost export-onnx`: its exports and folders, its output and its requirements."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from fakes.refusals import refused
from onnx_exports import DESIGN, MODELS
from typer.testing import CliRunner

from cohost import cli
from cohost.designs.onnx import export as exporting
from cohost.designs.onnx.check import Agreement
from cohost.errors import CatalogError, PackagesError

if TYPE_CHECKING:
    from pathlib import Path

    from cohost.designs.onnx.export import Exported
    from cohost.designs.onnx.recipe import Recipe

Calls = list[tuple[str, "Path", list["Path"]]]


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    """A catalog file of the tiny models."""
    image = "djl-inference:0.36.0-lmi26.0.0-cu130"
    content = {
        "endpoint": {"name": "lmi-cohost", "instance_type": "ml.g5.xlarge", "image": image},
        "models": {name: {**entry, "required_memory_mb": 512} for name, entry in MODELS.items()},
        "designs": {"cpu-onnx": {**DESIGN, "archives": str(tmp_path / "own")}},
    }
    file = tmp_path / "catalog.yaml"
    file.write_text(yaml.safe_dump(content))
    return str(file)


@pytest.fixture
def calls(exports: dict[str, Exported], monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Record the exports; each returns an existing export of another model."""
    made: Calls = []

    def export(recipe: Recipe, out: Path, hubs: list[Path], step: Any) -> Exported:
        for what in exporting.STEPS:
            step(what)
        made.append((recipe.name, out, hubs))
        return replace(exports["embed"], name=recipe.name)

    monkeypatch.setattr(exporting, "export_model", export)
    return made


def run(*arguments: str) -> str:
    """Return the output for scripts or people."""
    done = CliRunner().invoke(cli.app, ["export-onnx", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_named_models_go_where_they_are_told(catalog: str, calls: Calls, tmp_path: Path) -> None:
    """`cohost export-onnx` with names exports only these models, from the named folders to the named one."""
    answer = json.loads(
        run("embed", "--catalog", catalog, "--out", str(tmp_path / "out"), "--hub", str(tmp_path), "--json")
    )
    assert calls == [("embed", tmp_path / "out", [tmp_path])]
    (one,) = answer
    assert {"model", "precision", "serving", "sha256", "archive", "agreement"} <= one.keys()


def test_all_models_go_to_the_catalog_s_folder(catalog: str, calls: Calls, tmp_path: Path) -> None:
    """`cohost export-onnx` without names exports all models into the catalog's folder, and prints their deviations."""
    table = run("--catalog", catalog)
    assert {(name, out) for name, out, _ in calls} == {(name, tmp_path / "own") for name in MODELS}
    assert "cosine 1.000" in table


@pytest.mark.parametrize(
    ("precision", "found", "shown"),
    [
        ("fp32", {"output": 1.5e-8}, "1.5e-08"),
        ("int8", {"probability": 0.0123, "flipped": 0}, "0.0123, no label changed"),
    ],
)
def test_distance_is_told_in_the_measure_of_the_precision(
    precision: str, found: dict[str, Any], shown: str, catalog: str, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deviation of fp32 is printed for outputs, and that of int8 for probabilities and labels."""
    inner = exporting.export_model
    agreement = Agreement(
        **{"sequences": 25, "output": 0.1, "probability": None, "flipped": None, "cosine": None, **found}
    )
    monkeypatch.setattr(
        exporting,
        "export_model",
        lambda *given: replace(inner(*given), precision=precision, agreement=agreement),
    )
    assert shown in " ".join(run("xlmr", "--catalog", catalog).replace("│", " ").split())
    assert len(calls) == 1


def test_unknown_model_and_missing_packages_are_told(catalog: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown model is rejected with the nearest name, and a missing package with its dependency group."""
    with refused("model-not-in-catalog", kind=CatalogError) as caught:
        run("embedd", "--catalog", catalog)
    assert "'embed'" in caught.value.fix
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find(name))
    with refused("packages-missing", kind=PackagesError):
        run("embed", "--catalog", catalog)
