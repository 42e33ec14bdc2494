"""config.json and safetensors headers from a folder and from a server; damaged and hostile files."""

from __future__ import annotations

import json
import struct
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from fakes.hub import FakeHub, use_hub
from fakes.refusals import refused

from cohost.errors import HubAccessError, PlanError
from cohost.forecast.plan.model_files import Folder, HubFiles, count_elements, read_config
from cohost.forecast.plan.profiles import inspect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONFIG = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "id2label": {"0": "no", "1": "yes"},
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 10,
    "max_position_embeddings": 32,
    "torch_dtype": "float16",
}
WEIGHTS = 1_000_000


def safetensors(**tensors: tuple[str, list[int]]) -> bytes:
    """Write a file with these tensors and a megabyte of weights that must not be read."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    header |= {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]} for name, (dtype, shape) in tensors.items()
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"\0" * WEIGHTS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder."""
    folder = tmp_path / "org" / "name" / "resolve" / "main"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(
        safetensors(weight=("F16", [10, 8]), bias=("F16", [8]), position_ids=("I64", [1, 32]), scale=("F32", []))
    )
    return folder


def test_elements_are_counted_by_dtype(model: Path) -> None:
    """Weights are counted by dtype, a scalar as one element, and integer buffers are left out."""
    assert count_elements(Folder(model)) == {"F16": 88, "F32": 1}


def test_profile_keeps_what_decides_about_memory(model: Path) -> None:
    """Names of labels and other settings stay out of the reviewed file."""
    profile = inspect(Folder(model), source="test")
    assert profile.elements == {"fp16": 88, "fp32": 1}
    assert profile.checkpoint_dtype == "fp16"
    assert profile.weight_bytes() == 180
    assert profile.config["num_labels"] == 2
    assert {"id2label", "torch_dtype"} & profile.config.keys() == set()


def test_sharded_weights_are_added_up(model: Path) -> None:
    """The index names the files; each is read once."""
    (model / "model.safetensors").unlink()
    places = {"a": "part-1.safetensors", "b": "part-1.safetensors", "c": "part-2.safetensors"}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (model / "part-1.safetensors").write_bytes(safetensors(a=("F32", [2]), b=("F32", [3])))
    (model / "part-2.safetensors").write_bytes(safetensors(c=("F32", [5])))
    assert count_elements(Folder(model)) == {"F32": 10}


NONSENSE = [
    b"",
    struct.pack("<Q", 2**63),
    struct.pack("<Q", 100) + b"{}",
    *(
        struct.pack("<Q", len(header)) + header
        for header in (
            b"[]",
            b"{'",
            b'{"a": {}}',
            b'{"a": 5}',
            b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
            b'{"a": {"dtype": "F32", "shape": "ab", "data_offsets": [0, 4]}}',
        )
    ),
]


@pytest.mark.parametrize("content", NONSENSE)
def test_damaged_weights_are_told(model: Path, content: bytes) -> None:
    """A file that is no complete and valid safetensors gives an error and no traceback."""
    (model / "model.safetensors").write_bytes(content)
    with refused("weights-damaged", str(model), kind=PlanError):
        count_elements(Folder(model))


@pytest.mark.parametrize(
    ("index", "code"),
    [
        ('{"weight_map": {"a": "part-1.safetensors"}}', "weights-damaged"),
        ("[]", "weights-damaged"),
        ("no JSON", "weights-damaged"),
        ('{"weight_map": {}}', "weights-missing"),
        ("{}", "weights-missing"),
    ],
)
def test_damaged_index_is_told(model: Path, index: str, code: str) -> None:
    """An index that names missing files, or no file, is an error."""
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(index)
    with refused(code, str(model), kind=PlanError):
        count_elements(Folder(model))


@pytest.mark.parametrize(
    ("config", "code"), [(None, "config-missing"), ("[]", "config-invalid"), ("{", "config-invalid")]
)
def test_missing_and_damaged_configuration_is_told(tmp_path: Path, config: str | None, code: str) -> None:
    """A missing or damaged config.json is an error with its path."""
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with refused(code, f"{tmp_path}: config.json", kind=PlanError):
        read_config(Folder(tmp_path))


def test_weights_of_another_format_are_told(tmp_path: Path) -> None:
    """Weights that are not safetensors are an error."""
    (tmp_path / "pytorch_model.bin").write_bytes(b"weights")
    with refused("weights-missing", str(tmp_path), kind=PlanError):
        count_elements(Folder(tmp_path))


def test_quantised_weights_are_refused(model: Path) -> None:
    """Weights of a dtype that the plan does not know are rejected."""
    (model / "model.safetensors").write_bytes(safetensors(a=("F64", [2])))
    with refused("dtype-unknown", kind=PlanError):
        inspect(Folder(model), source="test")


@pytest.fixture
def hub(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Start a Hub with the model's files, and store a token on this machine that must not be used."""
    files = {path.name: path.read_bytes() for path in model.iterdir()}
    with closing(FakeHub("org/name", "main", files)) as fake:
        use_hub(monkeypatch, fake.url, tmp_path / "cache")
        monkeypatch.setenv("HF_TOKEN", "hf_of_this_machine")
        yield fake


HUB_FILES = HubFiles("org/name", None)


@pytest.mark.process
@pytest.mark.parametrize("ranges", [True, False])
def test_hub_is_asked_for_headers_only(model: Path, hub: FakeHub, ranges: bool) -> None:  # noqa: FBT001
    """The profile from the Hub equals that from a folder, and only the headers of the weights are fetched."""
    hub.ranges = ranges
    assert inspect(HUB_FILES, source="test") == inspect(Folder(model), source="test")
    assert (hub.sent < WEIGHTS / 5) is ranges


@pytest.mark.process
def test_sharded_weights_on_the_hub_are_added_up(hub: FakeHub) -> None:
    """The index names the files, of which the headers are read."""
    hub.files["part-1.safetensors"] = hub.files.pop("model.safetensors")
    hub.files["part-2.safetensors"] = safetensors(c=("F32", [5]))
    places = {"a": "part-1.safetensors", "b": "part-1.safetensors", "c": "part-2.safetensors"}
    hub.files["model.safetensors.index.json"] = json.dumps({"weight_map": places}).encode()
    assert count_elements(HUB_FILES) == {"F16": 88, "F32": 6}


@pytest.mark.process
def test_no_token_is_sent(hub: FakeHub) -> None:
    """A plan sends no token to the Hub, because containers have none."""
    inspect(HUB_FILES, source="test")
    assert hub.tokens == {None}


@pytest.mark.process
@pytest.mark.parametrize(
    ("read", "status", "headers", "code"),
    [
        (read_config, 401, {"X-Error-Code": "GatedRepo"}, "hub-gated"),
        (read_config, 401, {"X-Error-Code": "RepoNotFound"}, "hub-denied"),
        (read_config, 403, {}, "hub-denied"),
        (read_config, 503, {}, "hub-failed"),
        (count_elements, 401, {"X-Error-Code": "GatedRepo"}, "hub-gated"),
        (count_elements, 503, {}, "hub-failed"),
    ],
)
def test_refusals_of_the_hub_are_told(
    hub: FakeHub, read: Callable[[HubFiles], object], status: int, headers: dict[str, str], code: str
) -> None:
    """A gated model, a private one and a failing Hub give different error codes."""
    hub.status, hub.headers = status, headers
    with refused(code, HUB_FILES.where, kind=HubAccessError):
        read(HUB_FILES)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "file:///etc"])
def test_unreachable_hub_is_told(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """The error for an unreachable Hub names --folder; HF_ENDPOINT cannot make the command read local files."""
    monkeypatch.setenv("HF_ENDPOINT", address)
    with refused("hub-unreachable", HUB_FILES.where, kind=HubAccessError) as caught:
        read_config(HUB_FILES)
    assert "--folder" in caught.value.fix


def test_offline_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With HF_HUB_OFFLINE no request is sent, and the error names the variable."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with refused("hub-unreachable", HUB_FILES.where, kind=HubAccessError) as caught:
        read_config(HUB_FILES)
    assert "offline mode is enabled" in caught.value.problem
