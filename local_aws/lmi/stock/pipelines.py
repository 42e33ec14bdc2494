"""Loads a model as a Hugging Face pipeline on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_aws.lmi.stock.configuration import read_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


def load_pipeline(properties: Mapping[str, Any]) -> Callable[..., Any]:
    """The pipeline for a model's properties.

    Raises:
        Exception: whatever transformers raises on weights it cannot read or a task it does not know; ValueError for
            options of no use.
    """
    import transformers  # noqa: PLC0415 - only workers may pay for torch

    options = read_options(properties)
    trusted = {"trust_remote_code": options.trust_remote_code}
    architecture = (transformers.AutoConfig.from_pretrained(options.model, **trusted).architectures or [""])[0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model, **trusted)
    build: Callable[..., Callable[..., Any]] = transformers.pipeline
    return build(options.task or task_of(architecture), model=options.model, tokenizer=tokenizer, **options.keywords())


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
