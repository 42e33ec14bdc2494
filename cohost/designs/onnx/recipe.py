"""The recipes of ONNX archives: translator or handler, and all settings of the catalog that an archive depends on.

The module also lists the files of the ONNX handler: its own, and those that it shares with the batching handler.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cohost.archives.archive import content_digest
from cohost.archives.handlers import DIGEST_CHARACTERS
from cohost.archives.model_checks import means_entailment
from cohost.catalog.sections.designs import CpuOnnx, OnnxModel
from cohost.errors import OnnxError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cohost.catalog.models import Catalog, ModelEntry
    from cohost.catalog.sections.designs import Precision, Serving

    Setting = str | int | bool | None


_OWN: Final = Path(__file__).parent / "handler"
_SHARED_FOLDER: Final = Path(__file__).parents[2] / "handler"

# These modules start a process, read requests and write answers, and need neither torch nor transformers.
_SHARED: Final = (
    "cohost_classification",
    "cohost_errors",
    "cohost_features",
    "cohost_memory",
    "cohost_options",
    "cohost_reload",
    "cohost_request",
    "cohost_restart",
    "cohost_tasks",
    "cohost_texts",
    "cohost_tokenizer",
    "cohost_watchdog",
    "cohost_zero_shot",
)

REQUIREMENTS: Final = ("numpy==2.4.6", "onnxruntime==1.32.0", "tokenizers==0.22.2")
"""The packages that the ONNX handler imports and the cpu-full image lacks, in the versions of this project's lock."""


@cache
def handler_files() -> Mapping[str, bytes]:
    """Return the contents of the ONNX handler's files, model.py among them, by their names at an archive's root."""
    files = {path.name: path.read_bytes() for path in sorted(_OWN.glob("*.py")) if path.stem != "__init__"}
    return files | {f"{name}.py": (_SHARED_FOLDER / f"{name}.py").read_bytes() for name in _SHARED}


TRANSLATOR: Final = "translator"
HANDLER: Final = "handler"

_ZERO_SHOT: Final = "zero-shot-classification"
_READ: Final = {"cpu", "batched", "shared", "max_idle_time", "job_queue_size"}
_HANDLER_OPTIONS: Final = {
    *("truncation", "pooling", "normalize"),
    *("max_texts_per_request", "max_sequences_per_request", "max_characters_per_text"),
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The recipe of one model's archive; `wanted` is "translator", "handler", or None to decide by task and labels."""

    name: str
    entry: ModelEntry
    precision: Precision
    wanted: Serving | None

    def serving(self, labels: Sequence[str]) -> Serving:
        """Return "translator" or "handler", given the model's labels (an empty list for embeddings).

        DJL's translator reads single texts only. So a model that reads pairs of texts (natural language inference), or
        labels that the caller chooses, gets the handler (DJL 0.36.0: TextPrompt, ZeroShotClassificationInput).
        """
        if self.wanted is not None:
            return self.wanted
        reads_pairs = any(map(means_entailment, labels))
        return "handler" if reads_pairs or self.entry.task == _ZERO_SHOT else "translator"

    def settings(self, serving: Serving) -> dict[str, str]:
        """Return the settings of serving.properties that depend on the catalog, values by key.

        The default is one worker. With the translator, workers are threads that share one onnxruntime session; with the
        handler, workers are processes.
        """
        given: dict[str, Setting] = {
            "cpu.maxWorkers": 1 if self.entry.cpu is None else self.entry.cpu.max_workers,
            "job_queue_size": self.entry.job_queue_size,
            **(_handler_settings(self.entry) if serving == HANDLER else _translator_settings(self.entry)),
        }
        # Lower case turns Python's True and False into true and false; all other words are in lower case already.
        return {key: str(value).lower() for key, value in sorted(given.items()) if value is not None}

    def as_data(self, serving: Serving) -> dict[str, Any]:
        """Return all values that the archive depends on, for its note: catalog settings and the handler's digest."""
        handler = content_digest(handler_files())[:DIGEST_CHARACTERS] if serving == HANDLER else None
        return {
            "model_id": self.entry.model_id,
            "revision": self.entry.revision,
            "task": self.entry.task,
            "precision": self.precision,
            "serving": self.wanted,
            "handler": handler,
            "entry": self.entry.model_dump(mode="json", include=_READ, exclude_none=True),
        }


def cpu_design(catalog: Catalog) -> CpuOnnx:
    """Return the catalog's section `designs.cpu-onnx`, with all defaults if the catalog has none."""
    named = None if catalog.designs is None else catalog.designs.cpu_onnx
    return CpuOnnx() if named is None else named


def recipe_for(name: str, catalog: Catalog) -> Recipe:
    """Return the recipe by which a model of the catalog is exported and served.

    Raises:
        OnnxError: the catalog chooses the translator for a task whose request body DJL's translator does not accept.
    """
    entry = catalog.models[name]
    design = cpu_design(catalog)
    own = design.overrides.get(name, OnnxModel())
    wanted = own.serving or design.serving
    if wanted == TRANSLATOR and entry.task == _ZERO_SHOT:
        raise OnnxError(
            "translator-unfit",
            f"designs.cpu-onnx.overrides.{name}.serving",
            f"is translator, and DJL's translator needs another body for {_ZERO_SHOT}",
            allowed="handler",
            fix="write serving: handler for the model",
        )
    return Recipe(name=name, entry=entry, precision=own.precision or design.precision, wanted=wanted)


def _handler_settings(entry: ModelEntry) -> dict[str, Setting]:
    """Return the settings of `batched` or `shared` that the ONNX handler reads, too: none about batches or a GPU."""
    own = entry.engine_settings
    given = {} if own is None else own.model_dump(include=_HANDLER_OPTIONS)
    # The handler is asynchronous, and DJL Serving leaks the process of an asynchronous worker that it ends, so the
    # number of workers is fixed.
    least = 1 if entry.cpu is None else entry.cpu.max_workers
    return {"cpu.minWorkers": least, **{f"option.{name}": value for name, value in given.items()}}


def _translator_settings(entry: ModelEntry) -> dict[str, Setting]:
    settings: dict[str, Setting] = {
        "cpu.minWorkers": 1 if entry.cpu is None else entry.cpu.min_workers,
        "max_idle_time": entry.max_idle_time,
    }
    if entry.task == "feature-extraction":
        pooling = None if entry.engine_settings is None else entry.engine_settings.pooling
        normalize = None if entry.engine_settings is None else entry.engine_settings.normalize
        # The values without these settings are DJL's own defaults, written so that the archive states them.
        settings["pooling"] = "mean" if pooling in {None, "none"} else pooling
        settings["normalize"] = True if normalize is None else normalize
    return settings
