"""Which options of a model reach its pipeline.

Source: DJL Serving 0.36.0 (HuggingFaceProperties): only these do; `max_length`, `truncation` and the like in
serving.properties change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8", "auto": "auto"}
_OFF = "disable"
_AUTO = "auto"
_STREAMING = ("true", "false", "huggingface")


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """`model` is a folder; `task` None means that the architecture decides; `dtype` None is the checkpoint's own.

    `low_cpu_mem_usage` and `streaming` have the model loaded as one that generates text, whatever its task.
    """

    model: str
    task: str | None
    dtype: str | None
    trust_remote_code: bool
    low_cpu_mem_usage: bool
    streaming: bool

    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of `transformers.pipeline` beside task, model and tokenizer."""
        keywords: dict[str, Any] = {"trust_remote_code": self.trust_remote_code}
        return keywords if self.dtype is None else keywords | {"dtype": self.dtype}


def read_options(properties: Mapping[str, Any]) -> PipelineOptions:
    """The options from a handler's first call.

    `device_map` is left alone: with one CPU there is nothing to place.

    Raises:
        ValueError: an option has a value that the pipeline has no use for, or asks for what a CPU cannot do.
    """
    if properties.get("rolling_batch", _OFF) not in {_OFF, _AUTO}:
        msg = (
            f"rolling_batch={properties['rolling_batch']}: encoders have no rolling batch; write rolling_batch=disable"
        )
        raise ValueError(msg)
    if properties.get("quantize") or properties.get("load_in_8bit") or properties.get("load_in_4bit"):
        msg = "quantize: bitsandbytes needs a GPU, this machine is served on CPU; leave the option out"
        raise ValueError(msg)
    return PipelineOptions(
        model=properties.get("model_id") or properties["model_dir"],
        task=properties.get("task"),
        dtype=_dtype(properties.get("dtype")),
        trust_remote_code=_is_true(properties.get("trust_remote_code")),
        low_cpu_mem_usage=_is_true(properties.get("low_cpu_mem_usage")),
        streaming=_streaming(str(properties.get("enable_streaming", "false")).lower()),
    )


def _is_true(value: Any) -> bool:  # noqa: ANN401 - text, or nothing
    return str(value).lower() == "true"


def _streaming(value: str) -> bool:
    if value not in _STREAMING:
        msg = f"enable_streaming={value} is not allowed; allowed: {', '.join(_STREAMING)}"
        raise ValueError(msg)
    return value != "false"


def _dtype(name: str | None) -> str | None:
    if name is None:
        return None
    if name.lower() not in _DTYPES:
        msg = f"Invalid data type: {name}; known: {', '.join(_DTYPES)}"
        raise ValueError(msg)
    return _DTYPES[name.lower()]
