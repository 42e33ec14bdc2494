"""Checks that an archive's weights, configuration and tokenizer form one complete model that fits the task."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from .errors import Fault, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .inventory import Member

    Files = Mapping[str, Member]
    """The regular files by their path below the archive's root."""

_FORMATS = {
    "safetensors": re.compile(r"(adapter_)?model[\w.-]*\.safetensors"),
    "PyTorch": re.compile(r"(adapter_|pytorch_)?model[\w.-]*\.(bin|pt|pth)"),
    "TensorFlow": re.compile(r"tf_model[\w.-]*\.h5"),
    "Flax": re.compile(r"flax_model[\w.-]*\.msgpack"),
    "ONNX": re.compile(r"model[\w.-]*\.onnx"),
}
_TOKENIZERS = (
    {"tokenizer.json"},
    {"vocab.txt"},
    {"vocab.json", "merges.txt"},
    {"spm.model"},
    {"spiece.model"},
    {"sentencepiece.bpe.model"},
    {"tokenizer.model"},
)
_ENDINGS = {
    "text-classification": "ForSequenceClassification",
    "sentiment-analysis": "ForSequenceClassification",
    "zero-shot-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "ner": "ForTokenClassification",
    "question-answering": "ForQuestionAnswering",
    "fill-mask": "ForMaskedLM",
}
_LFS_POINTER = b"version https://git-lfs"


def weights_in(files: Iterable[str]) -> dict[str, list[str]]:
    """Return the weight files at an archive's root, sorted, by format; `files` are the paths of all its files."""
    return {
        kind: names
        for kind, pattern in _FORMATS.items()
        if (names := sorted(name for name in files if pattern.fullmatch(name)))
    }


def check_model(files: Files, properties: Mapping[str, str]) -> Iterator[Fault]:
    """Yield the faults of a model's files in an archive, missing files included.

    `properties` are those of the archive's serving.properties; their values have no blanks at the ends.
    """
    weights = weights_in(files)
    if not weights:
        yield from _check_absence(files, properties)
        return
    yield from _check_weights(files, weights)
    if "adapter_config.json" not in files:
        yield from _check_config(files.get("config.json"), properties.get("option.task"))
    if not any(needed <= set(files) for needed in _TOKENIZERS):
        yield Fault(
            "no-tokenizer",
            "the archive holds weights but no tokenizer (tokenizer.json, a vocabulary or a SentencePiece model)",
            "save the tokenizer beside the model (`tokenizer.save_pretrained`) and pack again",
        )
    model_id = properties.get("option.model_id", ".")
    if model_id.rstrip("/") not in {"", "."}:
        yield Fault(
            "weights-unused",
            f"the archive holds weights, but option.model_id={model_id!a} makes the server load others",
            "remove option.model_id, or leave the weights out of the archive",
            "warning",
        )


def _check_absence(files: Files, properties: Mapping[str, str]) -> Iterator[Fault]:
    if "option.model_id" in properties or properties.get("option.entryPoint", "model.py") in files:
        return
    deeper = [name for name in files if weights_in([name.rpartition("/")[2]])]
    if deeper:
        yield Fault(
            "weights-in-folder",
            f"the weights lie in a folder ({shown(deeper)}); the server looks at the archive's root",
            "pack the files of that folder at the root",
        )
        return
    yield Fault(
        "no-weights",
        "the archive holds no weights, and option.model_id names no location of them",
        "write option.model_id, or pack model.safetensors with config.json and the tokenizer",
    )


def _check_weights(files: Files, weights: Mapping[str, list[str]]) -> Iterator[Fault]:
    names = [name for group in weights.values() for name in group]
    if len(weights) > 1:
        kept = "safetensors" if "safetensors" in weights else next(iter(weights))
        yield Fault(
            "two-weight-formats",
            f"the weights are there in {len(weights)} formats ({shown(names)}); DJL may load any of them",
            f"keep the {kept} files only",
        )
    if pointers := [name for name in names if files[name].head.startswith(_LFS_POINTER)]:
        yield Fault(
            "lfs-pointer",
            f"no weights but Git LFS pointers: {shown(pointers)}",
            "run `git lfs pull`, or download the files, and pack again",
        )
    if empty := [name for name in names if files[name].size == 0]:
        yield Fault(
            "empty-weights", f"weight files without a byte: {shown(empty)}", "download them again and pack again"
        )
    yield from _check_shards(files)


def _check_shards(files: Files) -> Iterator[Fault]:
    index = files.get("model.safetensors.index.json")
    if index is None:
        return
    shards = _object(index.text).get("weight_map")
    if not isinstance(shards, dict):
        yield Fault(
            "shard-index", "model.safetensors.index.json holds no weight_map", "download it again and pack again"
        )
    elif missing := sorted({str(name) for name in shards.values()} - set(files)):
        yield Fault(
            "missing-shards",
            f"model.safetensors.index.json names files that are not there: {shown(missing)}",
            "pack all parts of the weights",
        )


def _check_config(config: Member | None, task: str | None) -> Iterator[Fault]:
    if config is None:
        yield Fault("no-config", "the archive holds weights but no config.json", "pack config.json beside the weights")
        return
    content = _object(config.text)
    if not content:
        yield Fault("config-unreadable", "config.json is not a JSON object", "save the model again and pack again")
        return
    architectures = content.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        yield Fault(
            "no-architecture",
            "config.json names no architectures, so it is unknown whether the model fits the task",
            "save the model again with `save_pretrained`",
            "warning",
        )
        return
    ending = _ENDINGS.get(task or "")
    if ending and not any(str(name).endswith(ending) for name in architectures):
        yield Fault(
            "architecture-unfit",
            f"config.json names {shown([str(name) for name in architectures])}, but {task} needs a model …{ending}",
            "pack a model trained for the task, or change option.task",
        )
    if task == "zero-shot-classification":
        yield from _check_labels(content)


def means_entailment(label: object) -> bool:
    """Return True if a label means entailment in natural language inference: it begins with "entail" (transformers)."""
    return str(label).lower().startswith("entail")


def _check_labels(config: Mapping[str, Any]) -> Iterator[Fault]:
    labels = config.get("label2id")
    if not isinstance(labels, dict) or not any(map(means_entailment, labels)):
        yield Fault(
            "no-entailment-label",
            "config.json's label2id has no label that starts with 'entail'; zero-shot scores would be those of the "
            "last label",
            "name the labels in config.json, or pack a model trained on natural language inference",
            "warning",
        )


def _object(text: bytes | None) -> dict[str, Any]:
    """Return the JSON object in a text; an empty dict if the text is not a JSON object."""
    try:
        content = json.loads(text or b"")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
