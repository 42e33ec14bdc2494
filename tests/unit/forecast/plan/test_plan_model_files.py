"""config.json and safetensors headers: from a folder, and from a server by ranges; damaged and hostile ones."""

from __future__ import annotations

import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from cohost.errors import PlanError
from cohost.forecast.plan.model_files import Folder, HubFiles, count_elements, read_config
from cohost.forecast.plan.profiles import inspect

if TYPE_CHECKING:
    from collections.abc import Iterator
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
    """A file with these tensors and a megabyte of weights that nobody should read."""
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
    """Weights count with their dtype, a scalar is one, and integer buffers are left out."""
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


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "ends after 0 bytes"),
        (struct.pack("<Q", 2**63), "is it a safetensors file"),
        (struct.pack("<Q", 100) + b"{}", "ends within its header"),
        (struct.pack("<Q", 2) + b"[]", "no JSON object"),
        (struct.pack("<Q", 2) + b"{'", "no JSON"),
        (struct.pack("<Q", 9) + b'{"a": {}}', "no dtype and shape"),
        (struct.pack("<Q", 37) + b'{"a": {"dtype": "F32", "shape": [-1]}}'[:37], "JSON|dtype"),
    ],
)
def test_damaged_weights_are_told(model: Path, content: bytes, told: str) -> None:
    """A file that is no safetensors, or only part of one, gives a sentence and no traceback."""
    (model / "model.safetensors").write_bytes(content)
    with pytest.raises(PlanError, match=told):
        count_elements(Folder(model))


def test_missing_files_are_told(tmp_path: Path) -> None:
    """An empty folder has neither config nor weights, and each message says what to do."""
    with pytest.raises(PlanError, match=r"no config.json.*fix: "):
        read_config(Folder(tmp_path))
    with pytest.raises(PlanError, match="safe_serialization"):
        count_elements(Folder(tmp_path))


def test_quantised_weights_are_refused(model: Path) -> None:
    """A dtype that the plan cannot convert is named."""
    (model / "model.safetensors").write_bytes(safetensors(a=("F64", [2])))
    with pytest.raises(PlanError, match="weights in F64"):
        inspect(Folder(model), source="test")


class _Hub(BaseHTTPRequestHandler):
    """Serves a folder as the Hub does; answers with ranges unless told not to; `sent` counts bytes."""

    root: Path
    ranges = True
    status = 200
    sent = 0

    def do_GET(self) -> None:
        """One file, or a part of it."""
        path = type(self).root / self.path.lstrip("/")
        if type(self).status != 200 or not path.is_file():
            self._answer(404 if type(self).status == 200 else type(self).status, b"no")
            return
        content, wanted = path.read_bytes(), self.headers.get("Range")
        if wanted and type(self).ranges:
            first, last = map(int, wanted.removeprefix("bytes=").split("-"))
            self._answer(206, content[first : last + 1])
        else:
            self._answer(200, content)

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        try:
            self.wfile.write(content)
            type(self).sent += len(content)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[str, type[_Hub]]]:
    """A server over the test's folder: its address, and its handler to set up."""
    handler = type("Hub", (_Hub,), {"root": tmp_path, "sent": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.process
def test_hub_is_asked_for_headers_only(model: Path, hub: tuple[str, type[_Hub]]) -> None:
    """The same profile as from the folder, for a few hundred bytes of a file of a megabyte."""
    address, handler = hub
    files = HubFiles("org/name", None, hub=address)
    assert inspect(files, source="test") == inspect(Folder(model), source="test")
    assert handler.sent < 2_000


@pytest.mark.process
def test_server_without_ranges_gives_the_same(model: Path, hub: tuple[str, type[_Hub]]) -> None:
    """A proxy that knows no ranges sends the whole file, of which the part is taken."""
    address, handler = hub
    handler.ranges = False
    assert count_elements(HubFiles("org/name", None, hub=address)) == count_elements(Folder(model))


@pytest.mark.process
@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(("status", "told"), [(401, "gated"), (403, "gated"), (503, "try again later")])
def test_refusals_of_the_hub_are_told(hub: tuple[str, type[_Hub]], status: int, told: str) -> None:
    """A gated model and a failing server are told apart."""
    address, handler = hub
    handler.status = status
    with pytest.raises(PlanError, match=told):
        read_config(HubFiles("org/name", None, hub=address))


def test_unreachable_hub_is_told() -> None:
    """Without a network, the way by a folder is named."""
    with pytest.raises(PlanError, match="--folder"):
        read_config(HubFiles("org/name", None, hub="http://127.0.0.1:9"))


def test_only_web_addresses_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_ENDPOINT cannot make the command read local files."""
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    with pytest.raises(PlanError, match="HF_ENDPOINT"):
        HubFiles("org/name", None)
