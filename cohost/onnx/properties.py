"""The serving.properties of ONNX archives: DJL's OnnxRuntime engine with a Java translator, or the Python handler.

Keys without `option.` are the translator's and its tokenizer's arguments (DJL Serving 0.36.0: `modes.md`, ModelInfo;
DJL 0.36.0: TextClassificationTranslator, TextEmbeddingTranslator, HuggingFaceTokenizer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.artifacts.archive import in_file_order
from cohost.artifacts.handlers import RETRY_THRESHOLD
from cohost.onnx.recipe import HANDLER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cohost.catalog.sections.designs import Serving

TRANSLATOR_FACTORIES: Final = {
    "text-classification": "ai.djl.huggingface.translator.TextClassificationTranslatorFactory",
    "feature-extraction": "ai.djl.huggingface.translator.TextEmbeddingTranslatorFactory",
}

_SEGMENTS: Final = "token_type_ids"


def properties_for(
    task: str, serving: Serving, settings: Mapping[str, str], *, limit: int, inputs: Sequence[str]
) -> dict[str, str]:
    """All lines of a model's serving.properties.

    Args:
        task: the model's task.
        serving: translator or handler.
        settings: the lines that the catalog decides.
        limit: the most tokens of a sequence.
        inputs: the names of the export's inputs.
    """
    own = _of_handler(task, limit) if serving == HANDLER else _of_translator(task, limit, inputs)
    return in_file_order({**own, **settings})


def _of_translator(task: str, limit: int, inputs: Sequence[str]) -> dict[str, str]:
    return {
        "engine": "OnnxRuntime",
        "translatorFactory": TRANSLATOR_FACTORIES[task],
        # The engine refuses more or fewer inputs than the file has (DJL 0.36.0: OrtSymbolBlock).
        "includeTokenTypes": str(_SEGMENTS in inputs).lower(),
        "padding": "true",
        "truncation": "true",
        # A tokenizer.json may state a length of its own, shorter than the model's; these two take its place.
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
