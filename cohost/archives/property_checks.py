"""Checks of serving.properties: keys, values and combinations that DJL Serving ignores or rejects."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from typing import TYPE_CHECKING

from .errors import ArtifactError, Fault, shown
from .known_keys import BATCHED_KEYS, KNOWN_KEYS, TASKS, TRANSLATOR_KEYS, KnownKey, is_integer, nearest
from .properties import entries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

BATCHED_MARK = "cohost_service.py"
"""The name of a file that only archives of cohost's handlers `batched` and `shared` contain."""

# The Python handler of ONNX archives (`onnx_service.py`) reads the same keys as the batching handler.
_HANDLER_MARKS = frozenset({BATCHED_MARK, "onnx_service.py"})
_ONNX_ENGINE = "OnnxRuntime"

_BLANKS = " \t\f\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_FETCHED = ("s3://", "djl://")
_VALUE_CODES = {"engine": "unknown-engine", "option.task": "unknown-task"}


def parse(data: bytes) -> tuple[dict[str, str], list[Fault]]:
    """Return the properties of a serving.properties file as Java reads it, and the faults of the file's text.

    Blanks at both ends of the values are stripped.
    """
    faults = list(_check_encoding(data))
    try:
        lines = entries(data.decode("latin-1"))
    except ArtifactError as error:
        return {}, [*faults, Fault("properties-malformed", str(error), "write the file with `cohost render`")]
    faults += _check_lines(lines)
    return {key: value.strip(_BLANKS) for key, value in lines}, faults


def check_properties(properties: Mapping[str, str], files: Collection[str]) -> Iterator[Fault]:
    """Yield the faults of a serving.properties.

    `files` are the regular files of the same archive. The caller has stripped blanks from both ends of each value in
    `properties`.
    """
    own_code = any(name.endswith(".py") for name in files)
    handled = BATCHED_KEYS if _HANDLER_MARKS & set(files) else frozenset()
    if properties.get("engine") == _ONNX_ENGINE:
        handled |= TRANSLATOR_KEYS
    for key, value in properties.items():
        if key in handled:
            continue
        known = KNOWN_KEYS.get(key)
        if known is None:
            yield _unknown_key(key, own_code=own_code)
        elif key != "option.rolling_batch" and not known.accepts(value):
            yield _bad_value(known, value)
    yield from _check_engine(properties)
    for scope in ("", "gpu.", "cpu."):
        yield from _check_workers(properties, scope)
    yield from _check_devices(properties)
    yield from _check_restarts(properties)
    if BATCHED_MARK in files and properties.get("option.shared", "").lower() == "true":
        yield from _check_shared(properties)
    yield from _check_model_id(properties.get("option.model_id"), files)
    yield from _check_entry_point(properties.get("option.entryPoint"), files)


def _check_encoding(data: bytes) -> Iterator[Fault]:
    if data.startswith(_BYTE_ORDER_MARK):
        yield Fault(
            "byte-order-mark",
            "serving.properties starts with a byte order mark, which becomes part of the first key",
            "save it as UTF-8 without BOM",
        )
    elif not data.isascii():
        yield Fault(
            "properties-encoding",
            "serving.properties holds bytes outside ASCII; Java reads them as ISO-8859-1, so UTF-8 text is changed",
            "write such characters as \\uXXXX",
        )


def _check_lines(lines: list[tuple[str, str]]) -> Iterator[Fault]:
    for key, value in lines:
        if value != value.strip(_BLANKS):
            yield Fault(
                "trailing-blank",
                f"{key!a}: the value {value!a} has a blank at an end, and Java keeps it as part of the value",
                "remove the blank",
            )
    if repeated := [key for key, times in Counter(key for key, _ in lines).items() if times > 1]:
        yield Fault("repeated-key", f"keys written more than once: {shown(repeated)}; the last one counts", "keep one")


def _unknown_key(key: str, *, own_code: bool) -> Fault:
    close = nearest(key)
    if close in {f"option.{key}", key.removeprefix("option.")}:
        return Fault("misplaced-key", f"{key!a} is not read; the key is {close!a}", f"write {close}")
    if close is not None and not (own_code and key.startswith("option.")):
        return Fault("unknown-key", f"{key!a} is not read; the nearest known key is {close!a}", f"write {close}")
    return Fault(
        "unknown-key",
        f"{key!a} is not a key that the server reads for an encoder; the handler receives it unchanged",
        "remove it unless the handler in the archive reads it",
        "warning",
    )


def _bad_value(known: KnownKey, value: str) -> Fault:
    message = f"{known.name}: {value!a} is not allowed; allowed: {known.allowed}"
    if known.name.endswith("minWorkers") and value == "0":
        return Fault(
            "min-workers-zero",
            f"{known.name}: 0 lets all workers end, and the next call is refused with 503 for about a minute",
            "write 1",
            "warning",
        )
    if known.integer:
        code = "out-of-range" if is_integer(value) else "not-an-integer"
        return Fault(code, message, f"write {known.allowed}")
    close = difflib.get_close_matches(value, known.choices, n=1)
    return Fault(
        _VALUE_CODES.get(known.name, "bad-value"), message, f"write {close[0]}" if close else "write one of these"
    )


def _check_engine(properties: Mapping[str, str]) -> Iterator[Fault]:
    if "engine" not in properties:
        yield Fault("no-engine", "engine is not written, so the server guesses it", "write engine=Python", "warning")
    task, rolling = properties.get("option.task"), properties.get("option.rolling_batch")
    if task is not None and task not in TASKS:
        return
    if rolling is None and properties.get("engine") == _ONNX_ENGINE:
        return  # this engine has no rolling batches, so the engine ignores the key
    if rolling is None:
        yield Fault(
            "no-rolling-batch",
            "option.rolling_batch is not written; its default depends on the image",
            "write option.rolling_batch=disable",
            "warning",
        )
    elif rolling != "disable":
        yield Fault(
            "rolling-batch",
            f"option.rolling_batch: {rolling!a} is a way of generating text; encoders take 'disable' only",
            "write option.rolling_batch=disable",
        )


def _check_workers(properties: Mapping[str, str], scope: str) -> Iterator[Fault]:
    low, high = f"{scope}minWorkers", f"{scope}maxWorkers"
    written = [key for key in (low, high) if key in properties]
    if len(written) == 1:
        missing = high if written == [low] else low
        yield Fault(
            "workers-half-written",
            f"{written[0]} is written and {missing} is not; its default differs between versions of the server",
            f"write {missing} too",
            "warning",
        )
    elif len(written) > 1 and _more(properties[low], properties[high]):
        yield Fault(
            "min-over-max",
            f"{low}={properties[low]} is more than {high}={properties[high]}; the server refuses that",
            f"raise {high} or lower {low}",
        )


def _more(low: str, high: str) -> bool:
    return is_integer(low) and is_integer(high) and int(low) > int(high)


def _check_devices(properties: Mapping[str, str]) -> Iterator[Fault]:
    if not any(key.endswith(("minWorkers", "maxWorkers")) for key in properties):
        yield Fault(
            "no-workers",
            "the number of workers is not written; its default differs between versions of the server",
            "write gpu.minWorkers and gpu.maxWorkers",
            "warning",
        )
    cpu_only = any(key.startswith("cpu.") for key in properties) and not any(
        key.startswith("gpu.") for key in properties
    )
    if "option.tensor_parallel_degree" not in properties and not cpu_only:
        yield Fault(
            "no-tensor-parallel-degree",
            "option.tensor_parallel_degree is not written, so one worker takes all GPUs of the machine",
            "write option.tensor_parallel_degree=1",
            "warning",
        )


def _check_restarts(properties: Mapping[str, str]) -> Iterator[Fault]:
    """Yield faults by which DJL Serving leaves an asynchronous model's process behind, or does not restart a dead one.

    Both faults were recorded with a real server (recordings 27 and 28 in `tests/data/djl_lifecycle`).
    """
    if properties.get("option.async_mode", "").lower() != "true":
        return
    for scope in ("", "gpu.", "cpu."):
        low, high = f"{scope}minWorkers", f"{scope}maxWorkers"
        if low in properties and high in properties and _more(properties[high], properties[low]):
            yield Fault(
                "async-workers-differ",
                f"{low}={properties[low]} is under {high}={properties[high]} with option.async_mode=true: a worker "
                "that the server ends for being idle leaves its process and memory behind, or fails the model",
                f"write the same number for {low} and {high}",
            )
    threshold = properties.get("retry_threshold", properties.get("option.retry_threshold", "0"))
    if is_integer(threshold) and int(threshold) < 1:
        yield Fault(
            "async-no-retry",
            "retry_threshold is not written or 0 with option.async_mode=true: the first death of the model's process "
            "fails the model, and /ping of the whole server with it",
            "write retry_threshold=10, unless the server has SERVING_RETRY_THRESHOLD",
            "warning",
        )


def _check_shared(properties: Mapping[str, str]) -> Iterator[Fault]:
    """Yield the faults of a model that shares its engine process: settings that would apply to the other models too."""
    workers = [f"{scope}{key}" for scope in ("", "gpu.", "cpu.") for key in ("minWorkers", "maxWorkers")]
    if several := [key for key in workers if properties.get(key, "1") != "1"]:
        yield Fault(
            "shared-workers",
            f"{shown(several)} not 1 with option.shared=true: one engine process per device computes for all models",
            "write 1 for each, or pack the model with handler: batched",
        )
    if properties.get("option.tensor_parallel_degree", "1") != "1":
        yield Fault(
            "shared-tensor-parallel",
            "option.tensor_parallel_degree is not 1 with option.shared=true, whose engine process has one device",
            "write option.tensor_parallel_degree=1",
        )
    own = {"option.trust_remote_code": "true", "option.dtype": "tf32"}
    wrong = [f"{key}={value}" for key, value in own.items() if properties.get(key, "").lower() == value]
    wrong += ["option.threads"] if "option.threads" in properties else []
    if wrong:
        yield Fault(
            "shared-process-settings",
            f"{shown(wrong)} with option.shared=true: the setting would apply to all models of the engine process",
            "remove it, or pack the model with handler: batched",
        )


def _check_model_id(model_id: str | None, files: Collection[str]) -> Iterator[Fault]:
    if model_id is None or model_id.startswith(_FETCHED) or model_id.rstrip("/") in {"", "."}:
        return
    inside = model_id.removeprefix("./").rstrip("/")
    if any(name == inside or name.startswith(f"{inside}/") for name in files) or _HUB_ID.fullmatch(model_id):
        return
    yield Fault(
        "model-id-path",
        f"option.model_id: {model_id!a} is neither a Hub id nor s3://…, and no such folder is in the archive",
        "write a Hub id or an s3:// prefix, or pack the weights at the root and remove option.model_id",
    )


def _check_entry_point(entry_point: str | None, files: Collection[str]) -> Iterator[Fault]:
    if entry_point is None or entry_point.startswith(("djl_python.", "http://", "https://")):
        return
    if not {entry_point, f"{entry_point}.py"} & set(files):
        yield Fault(
            "entry-point-missing",
            f"option.entryPoint: {entry_point!a} is not in the archive, so the worker ends at its start",
            f"pack {entry_point}, or remove the key for the server's own handler",
        )
