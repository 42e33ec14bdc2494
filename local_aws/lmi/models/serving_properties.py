"""Read a model's serving.properties and make the model's settings from it, with DJL Serving's defaults.

Source of keys and defaults: DJL Serving 0.36.0 (ModelInfo, PyEnv) and its recorded answers.
"""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING

from cohost.archives.errors import ArtifactError
from cohost.archives.properties import loads
from local_aws.lmi.errors import Arithmetic, EngineFailure, IllegalArgument, ModelNotFound, NumberFormat
from local_aws.lmi.settings import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


logger = logging.getLogger(__name__)

STOCK_ENTRY_POINT = "djl_python.huggingface"
ONNX_ENGINE = "OnnxRuntime"
ONNX_FILE = "model.onnx"
ONNX_ENTRY_POINT = "local_aws.lmi.stock.onnx"
PROPERTIES_FILE = "serving.properties"
# More workers than this would not be faster on one machine; the real server starts any number that memory allows.
MOST_WORKERS = 64

_OPTION = "option."
_ENVIRONMENT_OPTION = "OPTION_"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DEFAULT_BATCH_DELAY_MS = 100
_DEFAULT_IDLE_S = 60
_DEFAULT_QUEUE_SIZE = 1000
_DEFAULT_PREDICT_TIMEOUT_S = 120
_DEFAULT_LOADING_TIMEOUT_S = 240


def read_settings(model_dir: Path, overrides: Mapping[str, int]) -> ModelSettings:
    """Return the settings of an unpacked model; `overrides` are numbers given with the load request, by property name.

    Raises:
        ModelNotFound: the engine cannot be derived from the files of the folder.
        IllegalArgument: serving.properties cannot be read, or this container does not have its engine.
        NumberFormat: a number cannot be read by Java's rules, by which a blank after a number is an error.
        EngineFailure: `cpu.minWorkers` is over 64, or the OnnxRuntime engine finds no model.onnx.
        Arithmetic: the engine is MPI, which needs a GPU.
    """
    given = _given_properties(model_dir)
    properties = given | {name: str(number) for name, number in overrides.items()}
    _check_engine(model_dir, properties)
    options = {key.removeprefix(_OPTION): value for key, value in properties.items() if key.startswith(_OPTION)}
    arguments = {key: value for key, value in properties.items() if not key.startswith(_OPTION)}
    numbers = _Numbers(properties)
    batch_size = numbers.first(("batch_size", "max_dynamic_batch_size"), 1)
    max_workers = numbers.first(("cpu.maxWorkers", "maxWorkers"), 0)
    if max_workers <= 0:
        max_workers = _workers_per_machine()
    min_workers = min(numbers.first(("cpu.minWorkers", "minWorkers"), 1), max_workers)
    if min_workers > MOST_WORKERS:
        raise EngineFailure(f"cpu.minWorkers={min_workers}: this container starts at most {MOST_WORKERS} at once")
    return ModelSettings(
        properties={"handler": "handle"} | arguments | options | ({"batchifier": "stack"} if batch_size > 1 else {}),
        entry_point=ONNX_ENTRY_POINT if _is_onnx(model_dir, properties) else _entry_point(model_dir, options),
        environment=_environment(options.get("env", "")),
        async_mode=options.get("async_mode", "").lower() == "true",
        batch_size=batch_size,
        max_batch_delay_ms=numbers.first(("max_batch_delay",), _DEFAULT_BATCH_DELAY_MS),
        max_idle_s=numbers.first(("max_idle_time",), _DEFAULT_IDLE_S),
        queue_size=numbers.first(("job_queue_size",), _DEFAULT_QUEUE_SIZE),
        min_workers=min_workers,
        max_workers=max_workers,
        required_memory_mb=numbers.first(("required_memory_mb",), 0),
        reserved_memory_mb=numbers.first(("reserved_memory_mb",), 0),
        predict_timeout_s=numbers.lenient("option.predict_timeout", _DEFAULT_PREDICT_TIMEOUT_S),
        loading_timeout_s=numbers.lenient("option.model_loading_timeout", _DEFAULT_LOADING_TIMEOUT_S),
        retry_threshold=numbers.stated(("option.retry_threshold", "retry_threshold")),
    )


def java_int(text: str) -> int:
    """Return a number as Java's Integer.parseInt reads it.

    Raises:
        NumberFormat: the text is not digits with an optional sign.
    """
    if not _INTEGER.fullmatch(text):
        raise NumberFormat(text)
    return int(text)


class _Numbers:
    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def first(self, names: tuple[str, ...], default: int) -> int:
        for name in names:
            if name in self._properties:
                return java_int(self._properties[name])
        return default

    def stated(self, names: tuple[str, ...]) -> int | None:
        """Return the number in the first property of `names` that is set; None if no property is set."""
        return self.first(names, 0) if any(name in self._properties for name in names) else None

    def lenient(self, name: str, default: int) -> int:
        """Return a number, or the default if the number cannot be read: the real server only logs this fault."""
        try:
            return self.first((name,), default)
        except NumberFormat:
            return default


def _given_properties(model_dir: Path) -> dict[str, str]:
    file = model_dir / PROPERTIES_FILE
    # java.util.Properties reads a byte stream as ISO-8859-1.
    try:
        properties = loads(file.read_text(encoding="latin-1")) if file.is_file() else {}
    except ArtifactError as error:
        raise IllegalArgument(f"{PROPERTIES_FILE}: {error}") from error
    return _environment_options() | properties


def _environment_options() -> dict[str, str]:
    """Return the OPTION_* variables, which are defaults for all models' options (LMI environment variables guide)."""
    options = {}
    for name, value in os.environ.items():
        if name.startswith(_ENVIRONMENT_OPTION) and value:
            key = name.removeprefix(_ENVIRONMENT_OPTION).lower()
            options[_OPTION + {"entrypoint": "entryPoint"}.get(key, key)] = value
    engine = options.pop(f"{_OPTION}engine", None)
    return options if engine is None else options | {"engine": engine}


def _check_engine(model_dir: Path, properties: Mapping[str, str]) -> None:
    engine = properties.get("engine")
    if engine is None and not _is_onnx(model_dir, properties) and not _looks_like_python(model_dir, properties):
        raise ModelNotFound(f"Failed to detect engine of the model: {model_dir}")
    if engine == "MPI":
        logger.error("engine=MPI needs a GPU, this machine is served on CPU; write engine=Python")
        raise Arithmetic("/ by zero")  # the real server's number of GPUs (recorded: 22)
    if engine == ONNX_ENGINE and not (model_dir / ONNX_FILE).is_file():
        # The real server would convert the weights with a program that its cpu-full image lacks.
        raise EngineFailure(f"{ONNX_FILE} not found in: {model_dir}")
    if engine not in {None, "Python", ONNX_ENGINE}:
        raise IllegalArgument(f"Deep learning engine not found: {engine}")


def _is_onnx(model_dir: Path, properties: Mapping[str, str]) -> bool:
    """Return True for the OnnxRuntime engine: if no engine is set, model.onnx takes precedence over Python files."""
    return properties.get("engine", ONNX_ENGINE) == ONNX_ENGINE and (model_dir / ONNX_FILE).is_file()


def _looks_like_python(model_dir: Path, properties: Mapping[str, str]) -> bool:
    files = ("model.py", f"{model_dir.name}.py", "config.json")
    return f"{_OPTION}model_id" in properties or any((model_dir / name).is_file() for name in files)


def _entry_point(model_dir: Path, options: Mapping[str, str]) -> str | None:
    named = options.get("entryPoint")
    if named is None:
        return "model.py" if (model_dir / "model.py").is_file() else None
    return None if named == STOCK_ENTRY_POINT else named


def _environment(text: str) -> dict[str, str]:
    pairs = (pair.split("=", 1) for pair in text.split(",") if "=" in pair)
    return {name.strip(): value.strip() for name, value in pairs}


def _workers_per_machine() -> int:
    """Return the default of maxWorkers, as in the real server: cores ÷ OMP_NUM_THREADS, which the image sets to 1."""
    cores = os.cpu_count() or 1
    return cores // min(max(java_int(os.environ.get("OMP_NUM_THREADS", "1")), 1), cores)
