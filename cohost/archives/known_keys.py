"""The keys of serving.properties that DJL Serving 0.36.0 reads and encoder models need, with type and range.

Sources: DJL Serving 0.36.0, `configurations_model.md`, ModelInfo.java, PyModel.java and the properties of its Hugging
Face handler. Keys of text generation (rolling batches, LoRA, key-value caches) are left out on purpose.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Java's Integer.parseInt accepts no blanks and no underscores, Python's int does.
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LARGEST_INT = 2**31 - 1
_CLOSE = 0.8
# The server parses a number of megabytes as a Java int.
_MEGABYTES = (1, _LARGEST_INT)


BOOLEAN = ("true", "false")
"""The values of a boolean key; Java's Boolean.parseBoolean ignores case and reads any other text as false."""


def is_integer(value: str) -> bool:
    """Return True if the text has the form that Java's Integer.parseInt accepts."""
    return bool(_INTEGER.fullmatch(value))


@dataclass(frozen=True, kw_only=True)
class KnownKey:
    """One key of serving.properties and its allowed values.

    The value is an integer from `minimum` to `maximum`, one of `choices`, or any text if neither is given. `others` are
    texts that are allowed in place of the integer, such as "max".
    """

    name: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def integer(self) -> bool:
        """Return True if the server reads the key's value with Integer.parseInt."""
        return self.minimum is not None

    @property
    def allowed(self) -> str:
        """Return the allowed values as text for an error message."""
        if self.minimum is not None:
            return " or ".join([f"an integer {self.minimum}-{self.maximum}", *self.others])
        return ", ".join(self.choices) if self.choices else "text"

    def accepts(self, value: str) -> bool:
        """Return True if the server accepts this value for the key and uses it unchanged."""
        if self.minimum is None or self.maximum is None:
            return self._accepts_text(value)
        if value in self.others:
            return True
        return is_integer(value) and self.minimum <= int(value) <= self.maximum

    def _accepts_text(self, value: str) -> bool:
        if self.choices == BOOLEAN:
            return value.lower() in BOOLEAN
        return value in self.choices if self.choices else bool(value)


TASKS = (
    "text-classification",
    "zero-shot-classification",
    "feature-extraction",
    "token-classification",
    "question-answering",
    "fill-mask",
    "sentiment-analysis",
    "ner",
)
"""The tasks of transformers' pipelines that encoder models serve."""


def _integers(bounds: tuple[int, int], *names: str, others: tuple[str, ...] = ()) -> list[KnownKey]:
    return [KnownKey(name=name, minimum=bounds[0], maximum=bounds[1], others=others) for name in names]


def _texts(*names: str, choices: tuple[str, ...] = ()) -> list[KnownKey]:
    return [KnownKey(name=name, choices=choices) for name in names]


_KEYS = [
    *_texts("engine", choices=("Python", "MPI", "PyTorch", "OnnxRuntime", "TensorFlow", "XGBoost", "Rust")),
    *_texts("option.model_id", "option.revision", "option.entryPoint", "option.handler", "option.env"),
    *_texts("option.task", choices=TASKS),
    *_texts("option.rolling_batch", choices=("disable",)),
    *_texts("option.dtype", choices=("auto", "fp32", "tf32", "fp16", "bf16", "int8")),
    *_texts("option.quantize", "option.device_map", "option.pythonExecutable", "option.output_formatter"),
    *_texts("option.modelName", "load_on_devices", "translatorFactory"),
    *_texts("option.trust_remote_code", "option.low_cpu_mem_usage", "option.async_mode", choices=BOOLEAN),
    *_texts("option.load_in_8bit", "option.load_in_4bit", "option.parallel_loading", choices=BOOLEAN),
    *_texts("option.enable_venv", "option.mpi_mode", "log_request_metric", choices=BOOLEAN),
    # With a minimum of 0 the server answers 503 for a minute after the workers are gone, which no user intends.
    *_integers((1, 1024), "minWorkers", "gpu.minWorkers", "cpu.minWorkers"),
    *_integers((1, 1024), "maxWorkers", "gpu.maxWorkers", "cpu.maxWorkers"),
    *_integers(_MEGABYTES, "required_memory_mb", "gpu.required_memory_mb"),
    *_integers(_MEGABYTES, "reserved_memory_mb", "gpu.reserved_memory_mb"),
    *_integers((1, 65536), "batch_size", "max_dynamic_batch_size"),
    *_integers((0, _LARGEST_INT), "max_batch_delay", "retry_threshold"),
    *_integers((1, _LARGEST_INT), "max_idle_time", "job_queue_size", "metrics_aggregation"),
    *_integers((1, 64), "option.tensor_parallel_degree", others=("max",)),
    *_integers((1, 64), "option.pipeline_parallel_degree"),
    *_integers((1, 86400), "option.predict_timeout", "option.model_loading_timeout"),
    *_integers((1, _LARGEST_INT), "option.max_output_size"),
]

KNOWN_KEYS: Mapping[str, KnownKey] = {key.name: key for key in _KEYS}
"""All known keys by name."""


BATCHED_KEYS = frozenset(
    f"option.{name}"
    for name in (
        "attention",
        "catalog_name",
        "compile",
        "device",
        "dtype_fallback",
        "engines_per_device",
        "log_interval_s",
        "max_batch_sequences",
        "max_batch_tokens",
        "max_characters_per_text",
        "max_length",
        "max_queue_time_ms",
        "max_queued_sequences",
        "max_sequences_per_request",
        "max_texts_per_request",
        "normalize",
        "packing",
        "pass_cost_tokens",
        "pass_timeout_s",
        "pooling",
        "share",
        "shared",
        "threads",
        "truncation",
        "warm_up",
    )
)
"""The keys that cohost's batching handler reads in addition to the server's; the handler checks their values."""


TRANSLATOR_KEYS = frozenset(
    (
        "includeTokenTypes",
        "maxLength",
        "modelMaxLength",
        "normalize",
        "option.interOpNumThreads",
        "option.intraOpNumThreads",
        "padding",
        "pooling",
        "truncation",
    )
)
"""The keys that DJL's text translators, their tokenizer and the OnnxRuntime engine read in addition to the server's.

Sources: DJL 0.36.0, TextClassificationTranslator, TextEmbeddingTranslator, HuggingFaceTokenizer, OrtModel.
"""


def nearest(key: str) -> str | None:
    """Return the known key that is closest to an unknown key; None if no known key is close.

    A known key that differs only by the prefix `option.` counts as close; to DJL Serving it is a different key.
    """
    for candidate in (key.removeprefix("option."), f"option.{key}"):
        if candidate in KNOWN_KEYS and candidate != key:
            return candidate
    by_lower = {known.lower(): known for known in KNOWN_KEYS}
    close = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=_CLOSE)
    return by_lower[close[0]] if close else None
