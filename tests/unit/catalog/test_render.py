"""Catalog entries as serving.properties and requirements."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from cohost.archives.archive import bundle_files
from cohost.archives.handlers import handler_files, handler_version
from cohost.archives.known_keys import BATCHED_KEYS, KNOWN_KEYS
from cohost.archives.properties import dumps, loads
from cohost.catalog.models import BatchedSettings, Catalog, ModelEntry, SharedSettings
from cohost.catalog.serving import (
    CPU_FULL_REQUIREMENTS,
    archives_of,
    code_of,
    files_of,
    properties_of,
    requirements_for,
)
from cohost.catalog_file import load_catalog
from cohost.handler.cohost_options import read_options
from cohost.hardware.images import parse_image

ROOT = Path(__file__).parents[3]
LMI = parse_image("djl-inference:0.36.0-lmi26.0.0-cu130")
CPU_FULL = parse_image("djl-inference:0.36.0-cpu-full")


def entry(**settings: object) -> ModelEntry:
    """Return a minimal entry with these settings."""
    return ModelEntry.model_validate({"model_id": "org/nli", "task": "text-classification", **settings})


def test_mdeberta_is_written_as_agreed() -> None:
    """The file that the product deploys, line by line."""
    mdeberta = load_catalog(ROOT / "model_configs" / "encoders.yaml").catalog.models["mdeberta"]

    assert dumps(properties_of(mdeberta)) == (
        "engine=Python\n"
        "option.model_id=MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7\n"
        "option.task=text-classification\n"
        "option.rolling_batch=disable\n"
        "gpu.minWorkers=1\n"
        "gpu.maxWorkers=1\n"
        "required_memory_mb=2048\n"
        "option.revision=b5113eb38ab63efdd7f280f8c144ea8b13f978ce\n"
        "option.tensor_parallel_degree=1\n"
    )


def test_every_setting_reaches_the_file() -> None:
    """Each field of an entry has an effect on serving.properties."""
    everything = entry(
        required_memory_mb=1,
        reserved_memory_mb=2,
        gpu={"minWorkers": 1, "maxWorkers": 3, "required_memory_mb": 4},
        cpu={"minWorkers": 5, "maxWorkers": 6},
        batch_size=7,
        max_batch_delay=8,
        max_idle_time=60,
        job_queue_size=9,
        dtype="fp16",
        trust_remote_code=False,
        tensor_parallel_degree=2,
        properties={"option.predict_timeout": "30"},
    )

    assert properties_of(everything) == {
        "engine": "Python",
        "option.model_id": "org/nli",
        "option.task": "text-classification",
        "option.rolling_batch": "disable",
        "gpu.minWorkers": "1",
        "gpu.maxWorkers": "3",
        "required_memory_mb": "1",
        "option.tensor_parallel_degree": "2",
        "gpu.required_memory_mb": "4",
        "reserved_memory_mb": "2",
        "batch_size": "7",
        "max_batch_delay": "8",
        "max_idle_time": "60",
        "job_queue_size": "9",
        "option.dtype": "fp16",
        "option.trust_remote_code": "false",
        "cpu.minWorkers": "5",
        "cpu.maxWorkers": "6",
        "option.predict_timeout": "30",
    }


def test_written_keys_and_values_are_ones_the_server_knows() -> None:
    """Each key and value that the catalog writes into serving.properties is one that the server accepts."""
    for key, value in properties_of(entry(dtype="bf16", batch_size=1024, max_batch_delay=0)).items():
        assert KNOWN_KEYS[key].accepts(value), (key, value)


def test_lmi_image_needs_no_requirements() -> None:
    """An archive for the lmi image has no requirements, because the image has transformers and torch."""
    assert list(files_of(entry(), LMI)) == ["serving.properties"]


def test_cpu_full_image_gets_requirements() -> None:
    """An archive for the cpu-full image has pinned requirements, because the image has no Python packages."""
    lines = files_of(entry(), CPU_FULL)["requirements.txt"].decode().splitlines()

    assert [line.split("==")[0] for line in lines] == [
        "transformers",
        "torch",
        "sentencepiece",
        "protobuf",
        "peft",
        "accelerate",
    ]


def test_batched_handler_travels_with_its_model() -> None:
    """An archive of a batched model has the handler's code, its entry point and its settings."""
    batched = entry(handler="batched", batched={"max_length": 256, "packing": False, "max_batch_tokens": "auto"})

    files = files_of(batched, LMI)
    properties = properties_of(batched)

    assert files.items() >= handler_files("batched").items()
    assert "__init__.py" not in files
    assert properties["option.async_mode"] == "true"
    assert properties["option.entryPoint"] == "model.py"
    assert properties["option.max_length"] == "256"
    assert properties["option.packing"] == "false"
    assert properties["option.max_batch_tokens"] == "auto"
    assert "option.pooling" not in properties


def test_a_batched_model_is_started_again_and_no_worker_of_it_is_ended() -> None:
    """A batched model has a retry_threshold of ten, or as stated, and a fixed number of workers."""
    properties = properties_of(entry(handler="batched", gpu={"minWorkers": 2, "maxWorkers": 2}))

    assert {key: value for key, value in properties.items() if "Workers" in key} == {
        "gpu.minWorkers": "2",
        "gpu.maxWorkers": "2",
        "cpu.minWorkers": "1",
        "cpu.maxWorkers": "1",
    }
    assert properties["retry_threshold"] == "10"
    stated = properties_of(entry(handler="batched", properties={"retry_threshold": "3"}))
    assert stated["retry_threshold"] == "3"
    assert "retry_threshold" not in properties_of(entry())


def test_a_shared_models_archive_is_a_batched_ones_and_says_that_it_is_shared() -> None:
    """The same code and version; the line that differs lets the proxy process find the engine process of all."""
    settings = {"max_length": 256, "pooling": "mean"}
    batched, shared = (entry(handler=name, **{name: settings}) for name in ("batched", "shared"))

    assert handler_version("shared") == handler_version("batched")
    assert code_of(shared) == code_of(batched)
    assert properties_of(shared).items() - properties_of(batched).items() == {("option.shared", "true")}
    assert properties_of(batched).items() <= properties_of(shared).items()
    assert requirements_for(shared, CPU_FULL) == requirements_for(batched, CPU_FULL)


def test_share_and_engines_are_written_where_the_catalog_states_them() -> None:
    """The defaults are the handler's; engines_per_device is the endpoint's, and reaches shared models only."""
    given = {
        "endpoint": {"name": "e", "instance_type": "ml.g5.xlarge", "image": f"{LMI.repository}:{LMI.tag}"},
        "models": {
            "own": {"model_id": "org/a", "task": "feature-extraction", "handler": "batched"},
            "one": {"model_id": "org/b", "task": "feature-extraction", "handler": "shared", "shared": {"share": 3}},
        },
    }
    keys = ("option.share", "option.engines_per_device")

    def lines(endpoint: dict[str, Any]) -> dict[str, dict[str, str]]:
        catalog = Catalog.model_validate(given | {"endpoint": given["endpoint"] | endpoint})
        files = {name: files["serving.properties"].decode() for name, files in archives_of(catalog, catalog.models)}
        return {name: {key: v for key, v in loads(text).items() if key in keys} for name, text in files.items()}

    assert lines({}) == {"own": {}, "one": {"option.share": "3"}}
    names = dict(archives_of(catalog := Catalog.model_validate(given), catalog.models))
    assert {loads(files["serving.properties"].decode())["option.catalog_name"] for files in names.values()} == {*names}
    assert lines({"engines_per_device": 2}) == {
        "own": {},
        "one": {"option.share": "3", "option.engines_per_device": "2"},
    }


def test_shared_settings_are_read_as_the_catalog_states_them() -> None:
    """The threads of a CPU are a setting of the engine process, so a shared model has none; it has a share."""
    assert set(SharedSettings.model_fields) ^ set(BatchedSettings.model_fields) == {"threads", "share"}
    shared = properties_of(entry(handler="shared", shared={"share": 100, "max_length": 8}))
    read = read_options({key.removeprefix("option."): value for key, value in shared.items()})

    assert (read.shared, read.share, read.max_length, read.engines_per_device) == (True, 100, 8, 1)


def test_batched_settings_are_the_ones_the_handler_reads() -> None:
    """Each batched setting has the same name and range in catalog, handler and archive check."""
    everything = {
        "max_length": 8,
        "truncation": False,
        "pooling": "mean",
        "normalize": True,
        "max_batch_tokens": 10_000_000,
        "max_batch_sequences": 4096,
        "pass_cost_tokens": 0,
        "attention": "sdpa",
        "packing": False,
        "compile": True,
        "dtype_fallback": True,
        "threads": 256,
        "max_texts_per_request": 1_000_000,
        "max_sequences_per_request": 1,
        "max_characters_per_text": 10_000_000,
        "max_queued_sequences": 10_000_000,
        "max_queue_time_ms": 3_600_000,
        "pass_timeout_s": 3600,
        "warm_up": False,
        "log_interval_s": 86_400,
    }
    assert set(everything) == set(BatchedSettings.model_fields)
    # The device is the server's choice, so the catalog has no key for it; the others are those of shared models.
    others = {f"option.{name}" for name in ("device", "catalog_name", "shared", "share", "engines_per_device")}
    assert {f"option.{name}" for name in everything} == BATCHED_KEYS - others

    properties = properties_of(entry(handler="batched", dtype="auto", batched=everything))
    read = read_options({key.removeprefix("option."): value for key, value in properties.items()})

    assert {name: getattr(read, name) for name in everything} == everything
    assert read.dtype == "auto"


def test_requirements_agree_with_the_lock() -> None:
    """The requirements of an archive have the locked versions, with which the handler was tested."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    locked = {package["name"]: package["version"] for package in packages}

    assert {line: locked[line.split("==")[0]] for line in CPU_FULL_REQUIREMENTS} == {
        line: line.split("==")[1] for line in CPU_FULL_REQUIREMENTS
    }


def test_requirements_file_is_the_lock_s() -> None:
    """A user with plain pip gets the versions that uv.lock pins."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    locked = {package["name"]: package["version"] for package in packages}
    for file in ("requirements.txt", "requirements-all.txt"):
        pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / file).read_text(), re.MULTILINE))
        assert pins.items() <= locked.items(), file


def test_archives_of_a_deploy_follow_the_topology() -> None:
    """A deploy writes one archive per model, or one archive with a folder per model, with the same files."""
    zero = load_catalog(ROOT / "model_configs" / "examples" / "scale-to-zero.yaml").catalog
    multi = load_catalog(ROOT / "model_configs" / "encoders.yaml").catalog

    [(name, files)] = archives_of(zero, zero.models)
    apart = dict(archives_of(multi, multi.models))

    assert name == "models"
    assert files == bundle_files(apart)
    assert sorted(apart) == ["mdeberta", "minilm", "xlmr-large"]
