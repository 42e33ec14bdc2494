"""Exports: the content of an archive, equal bytes each time, and the rejection of a bad export."""

from __future__ import annotations

import hashlib
import json
import tarfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from fakes.hub import use_hub
from fakes.refusals import refused
from onnx_exports import export, make_catalog

from cohost.archives.properties import loads
from cohost.archives.verify import verify
from cohost.designs.onnx import export as exporting
from cohost.designs.onnx import torch_model
from cohost.designs.onnx.export import model_folder, quantize
from cohost.designs.onnx.recipe import REQUIREMENTS
from cohost.designs.onnx.torch_model import TorchModel
from cohost.errors import HubAccessError, OnnxError

if TYPE_CHECKING:
    import pytest

    from cohost.designs.onnx.export import Exported

ROOT = Path(__file__).parents[4]
TOKENS = {"config.json", "model.onnx", "serving.properties", "tokenizer.json", "tokenizer_config.json"}


def test_translator_archive_has_the_settings_that_djl_documents(folders: dict[str, Path]) -> None:
    """An archive for the translator has DJL's settings: engine, translator, limit and inputs of the file."""
    assert {file.name for file in folders["embed"].iterdir()} == TOKENS
    assert loads((folders["embed"] / "serving.properties").read_text()) == {
        "engine": "OnnxRuntime",
        "translatorFactory": "ai.djl.huggingface.translator.TextEmbeddingTranslatorFactory",
        "includeTokenTypes": "true",
        "padding": "true",
        "truncation": "true",
        "maxLength": "512",
        "modelMaxLength": "512",
        "pooling": "mean",
        "normalize": "true",
        "cpu.minWorkers": "1",
        "cpu.maxWorkers": "1",
    }
    properties = loads((folders["xlmr"] / "serving.properties").read_text())
    assert properties["translatorFactory"].endswith(".TextClassificationTranslatorFactory")
    assert properties["includeTokenTypes"] == "false"
    assert set(json.loads((folders["xlmr"] / "config.json").read_text())["id2label"]) == {"0", "1", "2"}


def test_handler_archive_brings_its_code_and_what_the_image_lacks(folders: dict[str, Path]) -> None:
    """An archive with the handler has its code and the requirements that cpu-full lacks."""
    files = {file.name for file in folders["deberta"].iterdir()}
    assert {"model.py", "onnx_service.py", "cohost_request.py", "requirements.txt"} | TOKENS <= files
    properties = loads((folders["deberta"] / "serving.properties").read_text())
    assert properties["engine"] == "Python"
    assert properties["option.async_mode"] == "true"
    assert properties["option.max_length"] == "512"
    assert "torch" not in (folders["deberta"] / "requirements.txt").read_text()


def test_files_run_on_the_onnxruntime_of_the_image(folders: dict[str, Path]) -> None:
    """Exports use file version 10 and operators of 21, which onnxruntime 1.20 of cpu-full 0.36.0 reads."""
    for folder in (folders["deberta"], folders["xlmr"]):
        model = onnx.load(str(folder / "model.onnx"))
        versions = {one.domain: one.version for one in model.opset_import}
        assert model.ir_version <= 10
        assert versions[""] <= 21
        # None of the newest operators of Microsoft's own, which come without a version of theirs.
        assert set(versions) <= {"", "com.microsoft", "ai.onnx.ml"}


def test_nothing_of_this_machine_is_in_an_export(folders: dict[str, Path]) -> None:
    """An export has no path or version of this machine, so equal models give equal files."""
    for folder in (folders["deberta"], folders["xlmr"]):
        content = (folder / "model.onnx").read_bytes()
        assert b"site-packages" not in content
        assert b"/cohost/" not in content


def test_second_export_gives_the_same_bytes(exports: dict[str, Exported], tmp_path: Path) -> None:
    """A second export and quantization gives the same bytes."""
    again = export("embed", tmp_path)
    assert again.sha256 == exports["embed"].sha256
    assert hashlib.sha256(again.file.read_bytes()).hexdigest() == again.sha256


def test_exports_agree_with_torch(exports: dict[str, Exported]) -> None:
    """An fp32 export equals torch up to rounding, and an int8 export has the same top labels and directions."""
    for name in ("bert", "xlmr"):
        assert exports[name].agreement.output < 1e-5
        assert exports[name].agreement.flipped == 0
    assert exports["deberta"].agreement.flipped == 0
    assert 0 < (exports["deberta"].agreement.probability or 0) < 0.01
    assert (exports["embed"].agreement.cosine or 0) > 0.99


def test_archive_passes_the_check_of_archives(exports: dict[str, Exported]) -> None:
    """`cohost verify` finds neither a fault nor an unknown key in an exported archive."""
    for one in (exports["deberta"], exports["embed"]):
        assert verify(one.file) == []


def test_export_beyond_the_tolerance_is_refused(
    exports: dict[str, Exported], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quantized model with other answers is rejected with the fix, and the former archive is kept."""

    def broken(source: Path, target: Path) -> None:
        quantize(source, target)
        model = onnx.load(str(target))
        scales = [one for one in model.graph.initializer if one.name.endswith("_scale") and one.float_data]
        for scale in scales:
            scale.float_data[:] = [-value for value in scale.float_data]
        assert scales
        onnx.save(model, str(target))

    former = tmp_path / "embed.tar.gz"
    former.write_bytes(exports["embed"].file.read_bytes())
    monkeypatch.setattr(exporting, "quantize", broken)
    with refused("export-inaccurate", "embed", kind=OnnxError):
        export("embed", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["embed.tar.gz"]
    assert former.read_bytes() == exports["embed"].file.read_bytes()


def test_model_that_was_not_trained_for_the_task_is_refused(tmp_path: Path) -> None:
    """A model without a trained classification head is rejected, because its answers would be random."""
    catalog = make_catalog(
        models={"m": {"model_id": "lmi-cohost/tiny-embed", "task": "text-classification"}}, design={}
    )
    with refused("head-missing", kind=OnnxError) as caught:
        export("m", tmp_path, catalog)
    assert "classifier.bias, classifier.weight" in caught.value.problem
    assert list(tmp_path.iterdir()) == []


def test_folder_that_holds_no_model_is_told(tmp_path: Path) -> None:
    """The error of a folder without a model has transformers' reason and the files to check."""
    folder = tmp_path / "org" / "name"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with refused("model-unloadable", str(folder), kind=OnnxError):
        TorchModel(folder, "feature-extraction")


def test_weights_on_s3_are_told_how_to_be_exported() -> None:
    """An export of weights in S3 is rejected, because the command reads only the Hub or a folder."""
    with refused("export-from-s3", "model_id", kind=OnnxError):
        model_folder("s3://b/m/", None, [])


def test_model_that_the_hub_does_not_give_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of an export without a network names the option that reads a folder."""
    use_hub(monkeypatch, "http://127.0.0.1:9", tmp_path)
    with refused("hub-unreachable", "org/name", kind=HubAccessError) as caught:
        model_folder("org/name", None, [])
    assert "--hub" in caught.value.fix


def test_weights_too_large_for_one_file_lie_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights over 2 GiB, the limit of protobuf, are stored beside the ONNX file."""
    monkeypatch.setattr(torch_model, "_SINGLE_FILE_BYTES", 1)
    models = {"m": {"model_id": "lmi-cohost/tiny-embed", "task": "feature-extraction"}}
    for precision, parts in (("fp32", {"model.onnx", "model.onnx.data"}), ("int8", {"model.onnx"})):
        one = export("m", tmp_path / precision, make_catalog(models=models, design={"precision": precision}))
        with tarfile.open(one.file) as archive:
            assert {name for name in archive.getnames() if name.startswith("model.onnx")} == parts
        assert (one.agreement.cosine or 0) > 0.99


def test_requirements_of_the_handler_agree_with_the_lock() -> None:
    """The requirements of an archive have the locked versions, with which it was tested."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    locked = {(package["name"], package["version"]) for package in packages}
    assert {tuple(line.split("==")) for line in REQUIREMENTS} <= locked
