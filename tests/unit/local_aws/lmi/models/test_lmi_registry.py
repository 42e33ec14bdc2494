"""The models of a store are registered as by the real server's start (recorded: 11 to 17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local_aws.lmi.models.registry import startup_models

if TYPE_CHECKING:
    from pathlib import Path


def _model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "serving.properties").touch()
    return folder


def test_each_folder_is_a_model(tmp_path: Path) -> None:
    """Each folder of the store is a model with a file: address that ends in a slash."""
    _model(tmp_path / "a")
    _model(tmp_path / "b")
    models = startup_models(tmp_path)
    assert [(model.name, model.url, model.at_startup) for model in models] == [
        ("a", f"file:{tmp_path}/a/", True),
        ("b", f"file:{tmp_path}/b/", True),
    ]


@pytest.mark.parametrize(
    ("folder", "name", "address"),
    [
        ("xlmr-large", "xlmr_large", "xlmr-large"),
        ("a.b", "a_b", "a.b"),
        ("a b", "a_b", "a%20b"),
        ("-x", "_x", "-x"),
        ("x--y", "x__y", "x--y"),
        ("한글", "__", "%ED%95%9C%EA%B8%80"),
        ("_x", "_x", "_x"),
        ("Ab", "Ab", "Ab"),
        ("1m", "1m", "1m"),
    ],
)
def test_a_folder_s_name_becomes_a_model_s(tmp_path: Path, folder: str, name: str, address: str) -> None:
    """Characters of a folder's name except ASCII letters, digits and _ become _ (recorded: 29)."""
    _model(tmp_path / folder)

    (model,) = startup_models(tmp_path)

    assert (model.name, model.url.rpartition(f"{tmp_path.name}/")[2]) == (name, f"{address}/")


def test_folders_that_become_equal_are_both_loaded_under_one_name(tmp_path: Path) -> None:
    """Two folders with equal model names end the server at the second load (recorded: 29)."""
    _model(tmp_path / "a-b")
    _model(tmp_path / "a_b")

    assert [model.name for model in startup_models(tmp_path)] == ["a_b", "a_b"]


def test_a_plain_file_makes_the_store_the_model(tmp_path: Path) -> None:
    """A plain file such as a README makes the store a model with the store's name."""
    store = _model(tmp_path / "rootmodel")
    assert [model.name for model in startup_models(store)] == ["rootmodel"]


def test_archives_and_empty_folders_are_ignored(tmp_path: Path) -> None:
    """Archives lying in the store are not loaded at start-up."""
    (tmp_path / "m.tar.gz").touch()
    (tmp_path / "empty").mkdir()
    assert startup_models(tmp_path) == []


def test_a_store_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """A multi-model container starts with nothing."""
    assert startup_models(tmp_path / "nowhere") == []
