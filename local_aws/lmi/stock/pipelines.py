"""Loads a model as a Hugging Face pipeline on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from local_aws.lmi.stock.configuration import read_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Source: DJL Serving 0.36.0 (huggingface handler); the later entry wins where two fit.
_TASK_OF_ARCHITECTURE = {
    "ForQuestionAnswering": "question-answering",
    "ForTokenClassification": "token-classification",
    "ForSequenceClassification": "text-classification",
    "ForMultipleChoice": "multiple-choice",
    "ForMaskedLM": "fill-mask",
    "ForCausalLM": "text-generation",
    "ForConditionalGeneration": "text2text-generation",
}
# What `enable_streaming` can do something with.
_GENERATING = ("CausalLM", "GPT2LMHeadModel", "T5ForConditionalGeneration")


@dataclass(frozen=True)
class Streaming:
    """A model with `enable_streaming`: an encoder answers every request with `refusal` (recorded: 22, exchange 41)."""

    refusal: str


def load_pipeline(properties: Mapping[str, Any]) -> Callable[..., Any] | Streaming:
    """Load the pipeline for a model's properties.

    Raises:
        Exception: whatever transformers raises on weights it cannot read or a task it does not know; ValueError for
            options of no use.
    """
    import transformers  # noqa: PLC0415 - only workers may pay for torch

    options = read_options(properties)
    trusted = {"trust_remote_code": options.trust_remote_code}
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


def _load_generating(model: str, trusted: Mapping[str, bool]) -> Any:  # noqa: ANN401 - a class of transformers
    import transformers  # noqa: PLC0415 - only workers may pay for torch

    return transformers.AutoModelForCausalLM.from_pretrained(model, **trusted)


def _streaming(architectures: Sequence[str]) -> Streaming:
    if any(architecture.endswith(_GENERATING) for architecture in architectures):
        msg = "enable_streaming: text that a model generates is not emulated; allowed: false"
        raise ValueError(msg)
    return Streaming(f"model archs: {architectures} is not in supported list: *{_GENERATING}")


def task_of(architecture: str) -> str:
    """The task of an architecture's class name.

    Raises:
        ValueError: the name tells none.
    """
    tasks = [task for suffix, task in _TASK_OF_ARCHITECTURE.items() if architecture.endswith(suffix)]
    if not tasks:
        msg = f"Task couldn't be inferred from {architecture}. Please manually set `task` option."
        raise ValueError(msg)
    return tasks[-1]
