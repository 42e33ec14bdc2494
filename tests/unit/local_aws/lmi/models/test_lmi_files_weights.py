"""A model's weights and the folder in which its workers find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.faults import faulted
from huggingface_hub import try_to_load_from_cache

from local_aws.lmi.models.files import with_local_weights
from local_aws.lmi.models.hub import Hub
from local_aws.lmi.models.serving_properties import read_settings
from local_aws.lmi.workers.fork_server import HUB_CACHE

if TYPE_CHECKING:
    from pathlib import Path

    from local_aws.lmi.settings import ModelSettings

COMMIT = "b5113eb38ab63efdd7f280f8c144ea8b13f978ce"


def read(folder: Path, model_id: str, *lines: str) -> ModelSettings:
    """Return the settings of a model with these lines after its weights are fetched; the hub has `org/model`."""
    model_dir = folder / "model"
    model_dir.mkdir(exist_ok=True)
    text = "\n".join(["engine=Python", f"option.model_id={model_id}", *lines])
    (model_dir / "serving.properties").write_text(text)
    (folder / "hub" / "org" / "model").mkdir(parents=True, exist_ok=True)
    (folder / "hub" / "org" / "model" / "config.json").write_text("{}")

    def download(url: str, to: Path) -> Path:
        assert url == "s3://bucket/weights/"
        return to

    (folder / "cache").mkdir(exist_ok=True)
    settings = read_settings(model_dir, {})
    hub = Hub([folder / "hub"])
    return with_local_weights(settings, model_dir=model_dir, hub=hub, cache=folder / "cache", download=download)


@pytest.mark.parametrize("revision", [None, COMMIT, "main", "refs/pr/1"])
def test_a_model_of_the_hub_is_found_in_the_cache_and_named_as_it_was(tmp_path: Path, revision: str | None) -> None:
    """A handler gets the model id of serving.properties unchanged in its first call."""
    lines = [] if revision is None else [f"option.revision={revision}"]
    for _ in range(2):
        settings = read(tmp_path, "org/model", *lines)
    assert (settings.properties["model_id"], settings.properties.get("revision")) == ("org/model", revision)
    found = try_to_load_from_cache(
        "org/model", "config.json", cache_dir=tmp_path / "cache" / HUB_CACHE, revision=revision
    )
    assert isinstance(found, str)


def test_weights_from_s3_are_a_folder_and_no_revision(tmp_path: Path) -> None:
    """Weights from S3 are a local folder without a revision; the server fetches them before the worker starts."""
    settings = read(tmp_path, "s3://bucket/weights/", f"option.revision={COMMIT}")
    assert settings.properties["model_id"].startswith(str(tmp_path / "cache"))
    assert "revision" not in settings.properties


def test_a_model_that_the_hub_lacks_is_not_loaded(tmp_path: Path) -> None:
    """A load of a model that the hub lacks fails with the id and the searched folders."""
    with faulted("EngineException", 500, "org/other"):
        read(tmp_path, "org/other")
