"""Why a backend cannot serve a model: the rules that `cohost engines` shows and that every synth refuses by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cohost.engines import facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cohost.engines.facts import Backend
    from cohost.engines.model_facts import ModelFacts

_FEATURES: Final = "feature-extraction"
_ZERO_SHOT: Final = "zero-shot-classification"
_LEAST_ENTAILMENT_LABELS: Final = 2


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A fact that speaks against a backend, or (`certain` false) one that leaves it open; and where it was read."""

    text: str
    source: str
    certain: bool = True


def reasons_against(backend: Backend, model: ModelFacts) -> list[Reason]:
    """Everything about a model itself that keeps a backend from serving it, whatever the image; none: it can."""
    return list(_RULES[backend](model))


def head_faults(model: ModelFacts) -> Iterator[Reason]:
    """What a task lacks in the model's own weights."""
    if model.task == _FEATURES:
        return
    if model.has_head is False:
        yield Reason(
            text=f"{model.architecture} was saved without a head for {model.task}, so its answers would be made up",
            source=facts.TRANSFORMERS,
        )
    elif model.task == _ZERO_SHOT and _cannot_entail(model):
        yield Reason(
            text=f"none of its {model.labels} labels means entailment, which {model.task} reads",
            source=facts.ZERO_SHOT,
        )


def _cannot_entail(model: ModelFacts) -> bool:
    if model.entails is not None:
        return not model.entails
    return model.labels is not None and model.labels < _LEAST_ENTAILMENT_LABELS


def _transformers(model: ModelFacts) -> Iterator[Reason]:
    yield from head_faults(model)
    if model.architecture is None:
        yield _not_known(model)


def _onnx(model: ModelFacts) -> Iterator[Reason]:
    yield from head_faults(model)
    if model.own_code:
        yield Reason(text="trust_remote_code: code of its own is not exported", source=facts.OWN_EXPORT_CODE)
    if model.model_type is None:
        yield _not_known(model)
    elif model.model_type not in facts.EXPORTED:
        yield Reason(
            text=f"model_type {model.model_type} is none of those tried; the export's own check decides",
            source=facts.OWN_EXPORT,
            certain=False,
        )


def _vllm(model: ModelFacts) -> Iterator[Reason]:
    if model.deberta:
        yield Reason(text="vLLM has no DeBERTa", source=facts.VLLM_DEBERTA)
    if model.task != _FEATURES:
        yield Reason(text=f"DJL's vLLM service answers text and vectors, not {model.task}", source=facts.DJL_VLLM)
    elif model.architecture is None:
        yield _not_known(model)
    elif model.architecture not in facts.VLLM_EMBEDDINGS and not model.deberta:
        yield Reason(
            text=f"{model.architecture} is none of the encoders in vLLM's table; its transformers backend may run it",
            source=facts.VLLM_REGISTRY,
            certain=False,
        )


def _trtllm(model: ModelFacts) -> Iterator[Reason]:
    yield Reason(text="DJL's TensorRT-LLM service answers generated text alone", source=facts.DJL_TRTLLM)
    if model.architecture is not None and model.architecture not in facts.TRTLLM_ENCODERS:
        yield Reason(text=f"TensorRT-LLM's runtime has no {model.architecture}", source=facts.TRTLLM_MODELS)


def _not_known(model: ModelFacts) -> Reason:
    return Reason(
        text=f"its architecture is not known; fix: cohost models inspect {model.name} --write",
        source=model.source,
        certain=False,
    )


_RULES: Final[dict[Backend, Callable[[ModelFacts], Iterator[Reason]]]] = {
    "stock": _transformers,
    "batched": _transformers,
    "onnx": _onnx,
    "vllm": _vllm,
    "trtllm": _trtllm,
}
