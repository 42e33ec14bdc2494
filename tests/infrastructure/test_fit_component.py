"""The checks of a catalog whose models are all served by one container."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from synthesis import ROOT, make_catalog

from cohost.catalog_file import load_catalog
from cohost.forecast.plan.profiles import load_profiles, profiles_path
from cohost.forecast.pricing.price_list import load_prices
from cohost.hardware.images import parse_image, parse_image_uri
from constructs_lib.checks.catalog import catalog_misfits
from constructs_lib.checks.findings import misfits

if TYPE_CHECKING:
    from constructs_lib.checks.findings import Misfit

ZERO = {"topology": "scale-to-zero"}
XLMR: dict[str, Any] = {
    "model_id": "joeddav/xlm-roberta-large-xnli",
    "revision": "0" * 40,
    "task": "text-classification",
}
MDEBERTA = XLMR | {"model_id": "MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7"}
MINILM = XLMR | {"model_id": "MoritzLaurer/multilingual-MiniLMv2-L6-mnli-xnli"}
THREE = {"a": XLMR, "b": MDEBERTA, "c": MINILM}
IMAGE_URI = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"


def found(*, endpoint: dict[str, Any] | None = None, models: dict[str, Any] | None = None) -> list[Misfit]:
    """The misfits of a scale-to-zero catalog's models."""
    catalog = make_catalog(endpoint=ZERO | (endpoint or {}), models=THREE if models is None else models)
    profiles = load_profiles(profiles_path(ROOT / "model_configs" / "encoders.yaml"))
    return catalog_misfits(catalog, parse_image(catalog.endpoint.image), profiles, load_prices(), "us-east-1")


def of_four_workers() -> dict[str, Any]:
    """Return three models that fit a T4 one by one, but not all at once."""
    return {name: entry | {"gpu": {"minWorkers": 1, "maxWorkers": 4}} for name, entry in THREE.items()}


def test_three_encoders_on_one_gpu_raise_nothing() -> None:
    """The product's models fit and start together."""
    assert found() == []


def test_models_that_do_not_fit_at_once_are_an_error() -> None:
    """Models that do not fit together are an error, because the server would not start."""
    misfits = found(models=of_four_workers(), endpoint={"instance_type": "ml.g4dn.xlarge"})

    assert [(misfit.level, misfit.name) for misfit in misfits] == [("error", "startup-memory")] * 2
    assert re.search(r"19,\d{3} of 14,920 MiB of one T4, and topology scale-to-zero holds", misfits[0].message)
    assert "; allowed: 14,920 MiB; fix: models.a.gpu.maxWorkers: " in misfits[0].message


def test_stated_memory_counts_beside_the_other_models() -> None:
    """A stated required_memory_mb must fit beside the other models, which may be loaded before."""
    models = THREE | {"c": MINILM | {"required_memory_mb": 1024, "gpu": {"required_memory_mb": 20_000}}}

    [misfit] = found(models=models)

    assert (misfit.level, misfit.name) == ("error", "startup-memory")
    # 22,589 MiB of the card less 2,578.8 and 974.8 of the other two, idle.
    assert misfit.message.startswith("models.c.gpu.required_memory_mb: 20,000 MiB are not free once the others are")
    assert "allowed: 19,035 MiB" in misfit.message


def test_stated_memory_counts_on_the_host_too() -> None:
    """A stated required_memory_mb must be free on the GPU and on the host."""
    models = THREE | {"c": MINILM | {"required_memory_mb": 12_000, "gpu": {"required_memory_mb": 1024}}}

    [misfit] = found(models=models)

    assert misfit.message.startswith("models.c.required_memory_mb: 12,000 MiB are not free")


def test_reserved_memory_is_held_back_from_what_is_free() -> None:
    """reserved_memory_mb must stay free after the load of a model."""
    keys = {"required_memory_mb": 1024, "reserved_memory_mb": 8_192, "gpu": {"required_memory_mb": 12_000}}

    assert [misfit.name for misfit in found(models=THREE | {"c": MINILM | keys})] == ["startup-memory"]
    assert found(models=THREE | {"c": MINILM | keys | {"reserved_memory_mb": 1024}}) == []


def test_model_on_several_gpus_is_an_error() -> None:
    """A model on several GPUs is an error, because a copy of the component has one GPU."""
    [misfit] = [one for one in found(models={"a": XLMR | {"tensor_parallel_degree": 2}}) if one.level == "error"]

    assert misfit.name == "component-accelerators"
    assert misfit.message.endswith("fix: tensor_parallel_degree: 1, or topology: multi-model")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SERVING_LOAD_MODELS", "NONE"),
        ("SERVING_WAIT_MODEL_LOADING", "false"),
        ("HF_MODEL_ID", "org/other"),
        ("SERVING_MODEL_STORE", "/elsewhere"),
    ],
)
def test_variable_that_changes_the_start_up_is_an_error(variable: str, value: str) -> None:
    """A variable is rejected that would keep the container from loading all published models before it is ready."""
    [misfit] = found(endpoint={"environment": {variable: value}})

    assert (misfit.level, misfit.name) == ("error", "startup-environment")
    assert misfit.message.startswith(f"endpoint.environment.{variable}: ")
    assert misfit.message.endswith("fix: take the variable out")


def test_start_up_settings_may_be_stated_as_they_are() -> None:
    """A start-up variable with the value that it has anyway is accepted."""
    environment = {"SERVING_LOAD_MODELS": "ALL", "SERVING_WAIT_MODEL_LOADING": "True", "OMP_NUM_THREADS": "1"}

    assert found(endpoint={"environment": environment}) == []


def test_archive_that_could_not_start_is_an_error_at_synth() -> None:
    """Synth applies the checks of the publishing function, before a resource is deployed."""
    models = THREE | {"c": MINILM | {"properties": {"option.load_in_8bit": "maybe"}}}

    [misfit] = found(models=models)

    assert (misfit.level, misfit.name) == ("error", "startup-model")
    assert misfit.message.startswith("models.c: option.load_in_8bit: 'maybe' is not allowed; allowed: ")
    assert "the server ends at its start" in misfit.message


def test_same_settings_are_no_error_on_a_multi_model_endpoint() -> None:
    """On a multi-model endpoint the settings are accepted, because a model that fails there harms no other."""
    catalog = make_catalog(
        endpoint={"environment": {"SERVING_WAIT_MODEL_LOADING": "false"}},
        models=THREE | {"c": MINILM | {"tensor_parallel_degree": 2, "properties": {"option.load_in_8bit": "maybe"}}},
    )
    image = parse_image(catalog.endpoint.image)

    assert catalog_misfits(catalog, image, {}, load_prices(), "us-east-1")[1:] == []


@pytest.mark.parametrize(("topology", "names"), [("multi-model", ["instance-multi-model"]), ("scale-to-zero", [])])
def test_table_of_multi_model_types_is_for_multi_model_endpoints_only(topology: str, names: list[str]) -> None:
    """ml.g6 is accepted for a component, and gives a warning for a multi-model endpoint."""
    endpoint = make_catalog(endpoint={"topology": topology, "instance_type": "ml.g6.xlarge"}).endpoint

    of_type = misfits(endpoint, parse_image(endpoint.image), parse_image_uri(IMAGE_URI), "us-east-1")

    assert [misfit.name for misfit in of_type] == names


@pytest.mark.parametrize("name", ["examples/scale-to-zero", "offline-scale-to-zero"])
def test_shipped_catalogs_that_scale_to_zero_raise_nothing(name: str) -> None:
    """Each scale-to-zero catalog of the project passes the checks with the reasons that it states."""
    path = ROOT / "model_configs" / f"{name}.yaml"
    catalog = load_catalog(path).catalog
    image = parse_image(catalog.endpoint.image)

    left = catalog_misfits(catalog, image, load_profiles(profiles_path(path)), load_prices(), "us-east-1")

    assert (catalog.endpoint.topology, sorted(catalog.models)) == (
        "scale-to-zero",
        ["mdeberta", "minilm", "xlmr-large"],
    )
    assert {misfit.name for misfit in left} == set(catalog.acknowledge)
