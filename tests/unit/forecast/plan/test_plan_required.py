"""Memory keys: computed if the catalog states none for a model, and kept if it states one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from fakes.refusals import refused

from cohost.catalog.serving import properties_of
from cohost.catalog_file import load_catalog
from cohost.errors import CatalogError, PlanError
from cohost.forecast.plan.profiles import load_profiles, profiles_path, write_profiles

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog
    from cohost.forecast.plan.profiles import Profile

MDEBERTA = "MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7"
ENCODERS = Path(__file__).parents[4] / "model_configs" / "encoders.yaml"
MEMORY_KEYS = ("required_memory_mb", "reserved_memory_mb", "gpu.required_memory_mb")


def write_catalog(folder: Path, **entry: Any) -> Path:
    """Write a catalog of mDeBERTa with these keys."""
    path = folder / "mine.yaml"
    endpoint = {"name": "e", "instance_type": "ml.g5.xlarge", "image": "djl-inference:0.36.0-lmi26.0.0-cu130"}
    model = {"model_id": MDEBERTA, "task": "text-classification", **entry}
    path.write_text(yaml.safe_dump({"endpoint": endpoint, "models": {"nli": model}}))
    return path


def memory_of(catalog: Catalog) -> dict[str, str]:
    """Return the memory keys of the model's archive."""
    return {key: value for key, value in properties_of(catalog.models["nli"]).items() if key in MEMORY_KEYS}


def test_keys_are_derived_from_the_profile(tmp_path: Path, encoder_profiles: dict[str, Profile]) -> None:
    """required_memory_mb is a loaded worker's memory, and reserved_memory_mb that of its largest batch."""
    path = write_catalog(tmp_path)
    write_profiles(profiles_path(path), {MDEBERTA: encoder_profiles[MDEBERTA]})
    loaded = load_catalog(path)
    assert memory_of(loaded.catalog) == {
        "required_memory_mb": "1280",
        "reserved_memory_mb": "128",
        "gpu.required_memory_mb": "1024",
    }
    assert loaded.derived_memory == {"nli"}
    assert loaded.source == path


def test_more_workers_require_more(tmp_path: Path, encoder_profiles: dict[str, Profile]) -> None:
    """More workers need more memory, because each worker has its own CUDA context and weights."""
    path = write_catalog(tmp_path, gpu={"minWorkers": 1, "maxWorkers": 3})
    write_profiles(profiles_path(path), {MDEBERTA: encoder_profiles[MDEBERTA]})
    assert memory_of(load_catalog(path).catalog)["gpu.required_memory_mb"] == "2944"


@pytest.mark.parametrize(
    "stated",
    [{"required_memory_mb": 2048}, {"reserved_memory_mb": 512}, {"gpu": {"required_memory_mb": 1500}}],
)
def test_stated_memory_is_left_as_it_is(
    tmp_path: Path, encoder_profiles: dict[str, Profile], stated: dict[str, Any]
) -> None:
    """If the catalog states one memory key of a model, no memory key of the model is computed."""
    path = write_catalog(tmp_path, **stated)
    before = memory_of(load_catalog(path).catalog)
    write_profiles(profiles_path(path), {MDEBERTA: encoder_profiles[MDEBERTA]})
    loaded = load_catalog(path)
    assert memory_of(loaded.catalog) == before
    assert loaded.derived_memory == frozenset()


def test_product_is_not_touched() -> None:
    """The default catalog states its memory keys, so they are not computed."""
    loaded = load_catalog(ENCODERS)
    assert loaded.derived_memory == frozenset()
    assert loaded.catalog.models["mdeberta"].required_memory_mb == 2048
    assert loaded.catalog.models["mdeberta"].gpu.required_memory_mb is None


def test_nothing_is_derived_without_a_profile(tmp_path: Path) -> None:
    """Without a profiles file no memory keys are computed."""
    assert memory_of(load_catalog(write_catalog(tmp_path)).catalog) == {}


def test_damaged_profiles_are_a_fault_of_the_catalog(tmp_path: Path) -> None:
    """A damaged profiles file is an error of one line for each command that reads the catalog."""
    path = write_catalog(tmp_path)
    profiles_path(path).write_text("a/b: {source: s, elements: {fp32: -1}, config: {a: 1}}")
    with pytest.raises(CatalogError) as caught:
        load_catalog(path)
    assert "mine.profiles.yaml: elements.fp32" in str(caught.value)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "\0"])
def test_profiles_that_are_no_mapping_are_told(tmp_path: Path, text: str) -> None:
    """A profiles file that is no mapping is rejected with the fix."""
    path = write_catalog(tmp_path)
    profiles_path(path).write_text(text)
    with refused("profiles-unreadable", str(profiles_path(path)), kind=PlanError):
        load_profiles(profiles_path(path))


def test_profiles_survive_being_written(tmp_path: Path, encoder_profiles: dict[str, Profile]) -> None:
    """Written profiles are read back unchanged, and the file has a comment about its content."""
    path = tmp_path / "x.profiles.yaml"
    write_profiles(path, encoder_profiles)
    assert load_profiles(path) == encoder_profiles
    assert path.read_text().startswith("# The sizes of the models")
