"""The loading of a model as a Hugging Face pipeline on the CPU, with the supported options.

Source: DJL Serving 0.36.0 (HuggingFaceProperties): only the options of `PipelineOptions` have an effect; `max_length`,
`truncation` and other keys in serving.properties have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8", "auto": "auto"}
_OFF = "disable"
_AUTO = "auto"
_STREAMING = ("true", "false", "huggingface")


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """The options of a pipeline.

    `model` is a folder or a Hub id. If None, `task` is the task of the model's architecture, `dtype` is the
    checkpoint's, and `revision` is "main". `low_cpu_mem_usage` and `streaming` make the model load as one that
    generates text, whatever its task.
    """

    model: str
    task: str | None
    dtype: str | None
    trust_remote_code: bool
    low_cpu_mem_usage: bool
    streaming: bool
    revision: str | None = None

    def source(self) -> dict[str, Any]:
        """Return the keyword arguments of `from_pretrained`: configuration, tokenizer and weights are of one revision.

        Source: djl_python/huggingface.py and properties_manager/hf_properties.py of DJL Serving.
        """
        revised = {} if self.revision is None else {"revision": self.revision}
        return {"trust_remote_code": self.trust_remote_code, **revised}

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of `transformers.pipeline` other than task, model and tokenizer."""
        return self.source() if self.dtype is None else self.source() | {"dtype": self.dtype}


def read_options(properties: Mapping[str, Any]) -> PipelineOptions:
    """Return the pipeline's options from the properties of a handler's first call.

    `device_map` is ignored: with one CPU there is no choice of device.

    Raises:
        ValueError: an option has a value that the pipeline does not support, or requires a GPU.
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
        revision=properties.get("revision") or None,
        streaming=_streams(str(properties.get("enable_streaming", "false")).lower()),
    )


def _is_true(value: Any) -> bool:  # the value is text or None
    return str(value).lower() == "true"


def _streams(value: str) -> bool:
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


# Source: DJL Serving 0.36.0 (huggingface handler); if two entries fit, the later one counts.
_TASK_OF_ARCHITECTURE = {
    "ForQuestionAnswering": "question-answering",
    "ForTokenClassification": "token-classification",
    "ForSequenceClassification": "text-classification",
    "ForMultipleChoice": "multiple-choice",
    "ForMaskedLM": "fill-mask",
    "ForCausalLM": "text-generation",
    "ForConditionalGeneration": "text2text-generation",
}
# The ends of the architectures' names that `enable_streaming` supports.
_GENERATING = ("CausalLM", "GPT2LMHeadModel", "T5ForConditionalGeneration")


@dataclass(frozen=True)
class Streaming:
    """An encoder with `enable_streaming`, which answers every request with `refusal` (recording 22, exchange 41)."""

    refusal: str


def load_pipeline(properties: Mapping[str, Any]) -> Callable[..., Any] | Streaming:
    """Load and return the pipeline for a model's properties.

    Raises:
        ValueError: an option's value is not supported, or the model's architecture fits no task.
        Exception: any other error of transformers, for weights that it cannot read or a task that it does not know.
    """
    import transformers  # imported here, so that only workers load torch

    options = read_options(properties)
    trusted = options.source()
    architectures = transformers.AutoConfig.from_pretrained(options.model, **trusted).architectures or [""]
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model, **trusted)
    if options.streaming:
        _load_generating(options.model, trusted)
        return _streaming(architectures)
    build: Callable[..., Callable[..., Any]] = transformers.pipeline
    task = options.task or task_of(architectures[0])
    if options.low_cpu_mem_usage:
        # The real handler then builds the pipeline around a model that generates text, so most tasks fail at their
        # first call (recorded: 22, exchange 11).
        return build(task, model=_load_generating(options.model, trusted), tokenizer=tokenizer)
    return build(task, model=options.model, tokenizer=tokenizer, **options.keywords())


def _load_generating(model: str, trusted: Mapping[str, Any]) -> Any:  # a class of transformers
    import transformers  # imported here, so that only workers load torch

    return transformers.AutoModelForCausalLM.from_pretrained(model, **trusted)


def _streaming(architectures: Sequence[str]) -> Streaming:
    if any(architecture.endswith(_GENERATING) for architecture in architectures):
        msg = "enable_streaming: text that a model generates is not emulated; allowed: false"
        raise ValueError(msg)
    return Streaming(f"model archs: {architectures} is not in supported list: *{_GENERATING}")


def task_of(architecture: str) -> str:
    """Return the task for the class name of a model's architecture.

    Raises:
        ValueError: no task is known for this name.
    """
    tasks = [task for suffix, task in _TASK_OF_ARCHITECTURE.items() if architecture.endswith(suffix)]
    if not tasks:
        msg = f"Task couldn't be inferred from {architecture}. Please manually set `task` option."
        raise ValueError(msg)
    return tasks[-1]
