"""The keys of serving.properties that this handler reads, with their ranges and defaults.

DJL Serving 0.36.0 passes the keys to the handler's first call without their prefix `option.`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from .cohost_errors import fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TASKS = ("text-classification", "zero-shot-classification", "feature-extraction")
DTYPES = ("auto", "fp32", "tf32", "fp16", "bf16")
DEVICES = ("auto", "cpu", "cuda")
ATTENTIONS = ("auto", "sdpa", "eager", "disentangled-flash", "flashdeberta")
POOLINGS = ("none", "mean", "cls")

Value = TypeVar("Value")

LIMITS = {
    "cpu.maxWorkers": (1, 1024, 1),
    "gpu.maxWorkers": (1, 1024, 1),
    "gpu.required_memory_mb": (0, 2**31 - 1, 0),
    "gpu.reserved_memory_mb": (0, 2**31 - 1, 0),
    "reserved_memory_mb": (0, 2**31 - 1, 0),
    "max_batch_sequences": (1, 4096, 64),
    "max_texts_per_request": (1, 1_000_000, 1024),
    "max_sequences_per_request": (1, 1_000_000, 4096),
    "max_characters_per_text": (1, 10_000_000, 1_000_000),
    "max_queued_sequences": (1, 10_000_000, 16_384),
    "max_queue_time_ms": (1, 3_600_000, 55_000),
    "pass_timeout_s": (1, 3600, 20),
    "log_interval_s": (1, 86_400, 60),
    "share": (1, 100, 1),
    "engines_per_device": (1, 4, 1),
}
"""Least value, most value and default of each numeric key; the catalog uses the same table."""

LIMITS_OR_AUTO = {
    "threads": (1, 256),
    "max_length": (8, 1_000_000),
    "max_batch_tokens": (64, 10_000_000),
    "pass_cost_tokens": (0, 1_000_000),
}
"""Least and most value of each numeric key that may also be "auto", its default."""

# On a CPU: ten texts of 512 tokens take a 6-layer model under a second on two cores. Such a batch is large enough to be
# fast, and small enough for others to wait for.
AUTO_BATCH_TOKENS = {"cpu": 5120, "cuda": 16_384}
"""The `max_batch_tokens` that "auto" stands for on each kind of device, in tokens; the memory plan uses it too."""

_AUTO = "auto"
_TRUE_FALSE = {"true": True, "false": False}
_NO_GPU = "-1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The settings of one model; None means "auto": chosen when the model loads, by device, model or machine.

    `catalog_name` is the model's name in the catalog, under which its counters are logged; None if the archive was not
    made from a catalog. `device_id` is the GPU that DJL Serving gave this worker, None on a CPU; `workers` is the
    number of workers that share the CPU. `planned_mib` is the peak of this worker's GPU memory that the catalog or the
    memory plan states, in MiB. `planned_mib` is None if neither states one, or if the model shares its engine process
    with other models. With `shared`, one engine process runs several models of a device; then `share` is the weight by
    which the model gets the device's time, and `engines_per_device` is the number of engine processes that all shared
    models of a device are spread over. In these settings, a sequence is a text, a pair of texts, or a text with one
    label's hypothesis; numbers of tokens include padding.
    """

    model: str
    catalog_name: str | None
    revision: str | None
    trust_remote_code: bool
    task: str
    device: str
    device_id: int | None
    workers: int
    planned_mib: int | None = field(compare=False)
    threads: int | None
    dtype: str
    dtype_fallback: bool
    attention: str
    packing: bool
    compile: bool
    max_length: int | None
    truncation: bool
    pooling: str
    normalize: bool
    max_batch_tokens: int | None
    max_batch_sequences: int
    pass_cost_tokens: int | None
    max_texts_per_request: int
    max_sequences_per_request: int
    max_characters_per_text: int
    max_queued_sequences: int
    max_queue_time_ms: int
    pass_timeout_s: int
    warm_up: bool
    log_interval_s: int
    shared: bool
    share: int
    engines_per_device: int


def read_options(properties: Mapping[str, Any]) -> Options:
    """Return the options from a handler's first call.

    Raises:
        ValueError: values are not allowed; the text lists all of them with the allowed values.
    """
    reader = _Reader(properties)
    device_id = properties.get("device_id", _NO_GPU)
    device = reader.choice("device", DEVICES, _AUTO)
    on_gpu = device == "cuda" or (device == _AUTO and device_id != _NO_GPU)
    options = Options(
        model=str(properties.get("model_id") or properties["model_dir"]),
        catalog_name=properties.get("catalog_name"),
        revision=properties.get("revision"),
        trust_remote_code=reader.flag("trust_remote_code", default=False),
        task=reader.choice("task", TASKS, "text-classification"),
        device=device,
        device_id=None if device_id == _NO_GPU else int(device_id),
        workers=reader.number("cpu.maxWorkers"),
        planned_mib=_planned_mib(reader),
        threads=reader.number_or_auto("threads"),
        dtype=reader.choice("dtype", DTYPES, _AUTO if on_gpu else "fp32"),
        dtype_fallback=reader.flag("dtype_fallback", default=False),
        attention=reader.choice("attention", ATTENTIONS, _AUTO),
        packing=reader.flag("packing", default=True),
        compile=reader.flag("compile", default=False),
        max_length=reader.number_or_auto("max_length"),
        truncation=reader.flag("truncation", default=True),
        pooling=reader.choice("pooling", POOLINGS, "none"),
        normalize=reader.flag("normalize", default=False),
        max_batch_tokens=reader.number_or_auto("max_batch_tokens"),
        max_batch_sequences=reader.number("max_batch_sequences"),
        pass_cost_tokens=reader.number_or_auto("pass_cost_tokens"),
        max_texts_per_request=reader.number("max_texts_per_request"),
        max_sequences_per_request=reader.number("max_sequences_per_request"),
        max_characters_per_text=reader.number("max_characters_per_text"),
        max_queued_sequences=reader.number("max_queued_sequences"),
        max_queue_time_ms=reader.number("max_queue_time_ms"),
        pass_timeout_s=reader.number("pass_timeout_s"),
        warm_up=reader.flag("warm_up", default=True),
        log_interval_s=reader.number("log_interval_s"),
        shared=reader.flag("shared", default=False),
        share=reader.number("share"),
        engines_per_device=reader.number("engines_per_device"),
    )
    reader.require(
        options.max_queued_sequences >= options.max_sequences_per_request,
        fault(
            "max_queued_sequences",
            f"got {options.max_queued_sequences}, and the largest request has {options.max_sequences_per_request}",
            allowed="max_sequences_per_request or more",
            fix="raise it, or lower max_sequences_per_request",
        ),
    )
    reader.require(
        options.attention != "disentangled-flash" or (options.packing and not options.compile),
        fault(
            "attention",
            "got 'disentangled-flash' with packing false or compile true",
            allowed="packing true and compile false, since it runs sequences packed",
            fix="leave packing and compile out",
        ),
    )
    reader.finish()
    return options


def _planned_mib(reader: _Reader) -> int | None:
    """Return one worker's share of the GPU memory that serving.properties states for all workers, in MiB.

    The share is the memory of the loaded model plus the memory of its running passes. The result is None if the file
    does not state both, or if several models share an engine process, since then no single file states the memory of
    that process.
    """
    loaded = reader.number("gpu.required_memory_mb")
    working = reader.number("gpu.reserved_memory_mb") or reader.number("reserved_memory_mb")
    if reader.flag("shared", default=False):
        return None
    return (loaded + working) // reader.number("gpu.maxWorkers") if loaded and working else None


class _Reader:
    """A reader of the properties' values that collects all faults, to report them in one error."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = properties
        self._faults: list[str] = []

    def flag(self, name: str, *, default: bool) -> bool:
        return self._read(name, default, lambda text: _TRUE_FALSE[text.lower()], "true or false")

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        return self._read(name, default, lambda text: allowed[allowed.index(text)], f"one of {', '.join(allowed)}")

    def number(self, name: str) -> int:
        least, most, default = LIMITS[name]
        return self._read(name, default, lambda text: _within(text, least, most), f"{least} to {most}")

    def number_or_auto(self, name: str) -> int | None:
        least, most = LIMITS_OR_AUTO[name]

        def read(text: str) -> int | None:
            return None if text == _AUTO else _within(text, least, most)

        return self._read(name, None, read, f"auto, or {least} to {most}")

    def require(self, condition: bool, text: str) -> None:  # noqa: FBT001 - the condition itself
        if not condition:
            self._faults.append(text)

    def finish(self) -> None:
        if self._faults:
            raise ValueError(" | ".join(self._faults))

    def _read(self, name: str, default: Value, read: Callable[[str], Value], allowed: str) -> Value:
        value = self._properties.get(name)
        if value is None:
            return default
        try:
            return read(str(value).strip())
        except (ValueError, KeyError):
            self._faults.append(fault(name, f"got {value!r}", allowed=allowed))
            return default


def _within(text: str, least: int, most: int) -> int:
    number = int(text)
    if not least <= number <= most:
        raise ValueError(text)
    return number
