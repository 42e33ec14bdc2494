"""The choice of files of a model, and the faults that are found before an upload."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from weights_models import CONFIG, safetensors

from cohost.weights.files import choose, faults_of, files_below

if TYPE_CHECKING:
    from pathlib import Path

REPOSITORY = [
    ".gitattributes",
    "1_Pooling/config.json",
    "2_Dense/model.safetensors",
    "README.md",
    "config.json",
    "flax_model.msgpack",
    "model.safetensors",
    "modeling_own.py",
    "modules.json",
    "onnx/config.json",
    "onnx/model.onnx",
    "openvino/openvino_model.xml",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "rust_model.ot",
    "sentencepiece.bpe.model",
    "tf_model.h5",
    "tokenizer.json",
    "training_args.bin",
    "vocab.txt",
]
TEXTS = [
    "1_Pooling/config.json",
    "config.json",
    "modules.json",
    "sentencepiece.bpe.model",
    "tokenizer.json",
    "vocab.txt",
]


def test_safetensors_and_texts_are_chosen() -> None:
    """The push chooses one format of weights and the modules of sentence-transformers, without code."""
    chosen = choose(REPOSITORY, allow_pickle=True, with_code=False)
    assert chosen == sorted([*TEXTS, "2_Dense/model.safetensors", "model.safetensors"])


def test_pickles_are_taken_where_there_is_nothing_else() -> None:
    """Pickles and their index are chosen only if the catalog allows them and there is no safetensors."""
    names = [name for name in REPOSITORY if not name.endswith(".safetensors")]
    assert choose(names, allow_pickle=False, with_code=False) == TEXTS
    chosen = choose(names, allow_pickle=True, with_code=False)
    assert chosen == sorted([*TEXTS, "pytorch_model.bin", "pytorch_model.bin.index.json"])


def test_code_is_taken_where_it_is_trusted() -> None:
    """A model with trust_remote_code includes its Python files."""
    assert "modeling_own.py" in choose(REPOSITORY, allow_pickle=False, with_code=True)


def write(folder: Path, **files: bytes | str) -> Path:
    """Write a complete model folder with these files instead; empty text removes a file."""
    whole: dict[str, bytes | str] = {
        "config.json": json.dumps(CONFIG),
        "tokenizer.json": "{}",
        "model.safetensors": safetensors(64),
    }
    for name, content in {**whole, **files}.items():
        if content != "":
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def codes(folder: Path, task: str = "text-classification", *, allow_pickle: bool = False) -> list[str]:
    """The codes of a folder's faults."""
    files = files_below(folder)
    chosen = {name: files[name] for name in choose(files, allow_pickle=allow_pickle, with_code=False)}
    return [fault.code for fault in faults_of(files, chosen, task=task)]


def test_whole_model_has_no_fault(tmp_path: Path) -> None:
    """A complete model has no fault."""
    assert codes(write(tmp_path)) == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tokenizer.json": ""}, ["no-tokenizer"]),
        ({"config.json": ""}, ["no-config"]),
        ({"config.json": "no json"}, ["config-unreadable"]),
        ({"config.json": json.dumps({"architectures": ["BertModel"]})}, ["architecture-unfit"]),
        ({"model.safetensors": ""}, ["no-weights"]),
        ({"model.safetensors": "", "pytorch_model.bin": b"\x80\x02"}, ["pickle"]),
        ({"model.safetensors": b"version https://git-lfs.github.com/spec/v1\n"}, ["lfs-pointer"]),
        ({"model.safetensors": b""}, ["empty-weights"]),
        ({"model.safetensors": safetensors(64)[:-8]}, ["incomplete-weights"]),
        ({"model.safetensors": safetensors(64) + b"more"}, ["incomplete-weights"]),
        ({"model.safetensors": b"\xff" * 200}, ["incomplete-weights"]),
        (
            {
                "model.safetensors": "",
                "model-00001-of-00002.safetensors": safetensors(8),
                "model.safetensors.index.json": json.dumps(
                    {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
                ),
            },
            ["missing-shards"],
        ),
    ],
)
def test_faults_are_found(files: dict[str, bytes | str], expected: list[str], tmp_path: Path) -> None:
    """Each cause gives exactly one fault with its own code."""
    assert codes(write(tmp_path, **files)) == expected


def test_pickle_that_is_allowed_has_no_fault(tmp_path: Path) -> None:
    """A pickle with allow_pickle has no fault."""
    folder = write(tmp_path, **{"model.safetensors": "", "pytorch_model.bin": b"\x80\x02"})
    assert codes(folder, allow_pickle=True) == []
