"""Each model of a catalog against each backend: the reasons for which a backend cannot serve a model.

`cohost engines` shows the results; every synth rejects a catalog by the same rules. A verdict covers the model itself
and the catalog's own image and instance type.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from cohost.designs.onnx.recipe import cpu_design
from cohost.engine_support import facts
from cohost.engine_support.facts import BACKENDS, ENGINE_NAMES, facts_of
from cohost.hardware.images import parse_image
from cohost.hardware.instances import INSTANCES
from cohost.routing import MULTI_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cohost.catalog.models import Catalog
    from cohost.engine_support.facts import Backend, ModelFacts
    from cohost.forecast.plan.profiles import Profile
    from cohost.hardware.images import Image


_FEATURES: Final = "feature-extraction"
_ZERO_SHOT: Final = "zero-shot-classification"
_LEAST_ENTAILMENT_LABELS: Final = 2


@dataclass(frozen=True)
class Reason:
    """A fact against a backend with its source; if `certain` is false, the backend may still work."""

    text: str
    source: str
    certain: bool = True


def head_faults(model: ModelFacts) -> Iterator[Reason]:
    """Yield the parts that the task needs and the model's own weights lack."""
    if model.task == _FEATURES:
        return
    if model.has_head is False:
        yield Reason(
            f"{model.architecture} was saved without a head for {model.task}, so its answers would be made up",
            facts.TRANSFORMERS,
        )
    elif model.task == _ZERO_SHOT and _cannot_entail(model):
        yield Reason(f"none of its {model.labels} labels means entailment, which {model.task} reads", facts.ZERO_SHOT)


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
        yield Reason("trust_remote_code: code of its own is not exported", facts.OWN_EXPORT_CODE)
    if model.model_type is None:
        yield _not_known(model)
    elif model.model_type not in facts.EXPORTED:
        yield Reason(
            f"model_type {model.model_type} is none of those tried; the export's own check decides",
            facts.OWN_EXPORT,
            certain=False,
        )


def _vllm(model: ModelFacts) -> Iterator[Reason]:
    if model.deberta:
        yield Reason("vLLM has no DeBERTa", facts.VLLM_DEBERTA)
    if model.task != _FEATURES:
        yield Reason(f"DJL's vLLM service answers text and vectors, not {model.task}", facts.DJL_VLLM)
    elif model.architecture is None:
        yield _not_known(model)
    elif model.architecture not in facts.VLLM_EMBEDDINGS and not model.deberta:
        yield Reason(
            f"{model.architecture} is none of the encoders in vLLM's table; its transformers backend may run it",
            facts.VLLM_REGISTRY,
            certain=False,
        )


def _trtllm(model: ModelFacts) -> Iterator[Reason]:
    yield Reason("DJL's TensorRT-LLM service answers generated text alone", facts.DJL_TRTLLM)
    if model.architecture is not None and model.architecture not in facts.TRTLLM_ENCODERS:
        yield Reason(f"TensorRT-LLM's runtime has no {model.architecture}", facts.TRTLLM_MODELS)


def _not_known(model: ModelFacts) -> Reason:
    return Reason(
        f"its architecture is not known; fix: cohost models inspect {model.name} --write", model.source, certain=False
    )


# Every reason in the model itself that keeps a backend from serving it; with none, the backend can.
_RULES: Final[dict[Backend, Callable[[ModelFacts], Iterator[Reason]]]] = {
    "stock": _transformers,
    "batched": _transformers,
    "onnx": _onnx,
    "vllm": _vllm,
    "trtllm": _trtllm,
}


Answer = Literal["yes", "no", "unknown"]

_ON_A_GPU: Final = ("vllm", "trtllm")
_CPU_FULL: Final = "cpu-full"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result for one model and one backend.

    `serves` is about the model alone, in the image that suits the backend best; `here` also counts the catalog's image
    and instance type. `against` are the reasons for the former, `place` those for the latter, `notes` are remarks.
    """

    serves: Answer
    here: bool
    against: tuple[Reason, ...]
    place: tuple[Reason, ...]
    notes: tuple[Reason, ...]

    @property
    def word(self) -> str:
        """Return the verdict in a word or two."""
        return "other image" if self.serves == "yes" and not self.here else self.serves


@dataclass(frozen=True, kw_only=True)
class ModelVerdicts:
    """One model with its verdicts for all backends."""

    model: ModelFacts
    backends: dict[Backend, Verdict]

    def as_data(self) -> dict[str, Any]:
        """Return the verdicts as JSON data."""
        return {**asdict(self.model), "backends": asdict(self)["backends"]}


def judge(
    catalog: Catalog, profiles: Mapping[str, Profile], names: Iterable[str], hubs: Sequence[Path] = ()
) -> list[ModelVerdicts]:
    """Evaluate models of a catalog against every backend.

    Raises:
        ImageError: the catalog names an image that is not known.
        PlanError: a model's config.json in a local folder cannot be read.
    """
    places = {backend: tuple(_place(backend, catalog)) for backend in BACKENDS}
    notes = {backend: tuple(_notes(backend, catalog)) for backend in BACKENDS}
    models = [facts_of(name, catalog.models[name], profiles, hubs) for name in names]
    return [
        ModelVerdicts(
            model=model,
            backends={backend: _verdict(backend, model, places[backend], notes[backend]) for backend in BACKENDS},
        )
        for model in models
    ]


def _verdict(backend: Backend, model: ModelFacts, place: tuple[Reason, ...], notes: tuple[Reason, ...]) -> Verdict:
    against = tuple(_RULES[backend](model))
    serves: Answer = "yes" if not against else "no" if any(reason.certain for reason in against) else "unknown"
    return Verdict(serves=serves, here=serves == "yes" and not place, against=against, place=place, notes=notes)


def _image_of(backend: Backend, catalog: Catalog) -> tuple[str, Image]:
    """Return the catalog key of the image that a backend would run in, and the image; ONNX has a stack of its own."""
    if backend == "onnx":
        return "designs.cpu-onnx.image", parse_image(cpu_design(catalog).image)
    return "endpoint.image", parse_image(catalog.endpoint.image)


def _place(backend: Backend, catalog: Catalog) -> Iterator[Reason]:
    """Yield the reasons in image, topology and instance type that keep a backend out."""
    key, image = _image_of(backend, catalog)
    reference = f"{image.repository}:{image.tag}"
    engine = ENGINE_NAMES[backend]
    if engine not in image.backends:
        has = ", ".join(sorted(image.backends)) or "none of DJL Serving's engines"
        yield Reason(f"{key} {reference} has no {engine} (it has {has})", facts.IMAGE_TABLE)
    if not image.multi_model and (backend == "onnx" or catalog.endpoint.topology == MULTI_MODEL):
        yield Reason(
            f"{key} {reference} lacks the multi-model label, so it serves one model an endpoint or component",
            facts.SAGEMAKER_LABEL,
        )
    instance = INSTANCES.get(catalog.endpoint.instance_type)
    if backend in _ON_A_GPU and instance is not None and not instance.gpus:
        yield Reason(
            f"endpoint.instance_type {catalog.endpoint.instance_type} has no GPU", "cohost/hardware/instances.py"
        )


def _notes(backend: Backend, catalog: Catalog) -> Iterator[Reason]:
    key, image = _image_of(backend, catalog)
    if image.flavour == _CPU_FULL and ENGINE_NAMES[backend] == "python":
        yield Reason(
            f"{key} has no Python packages, so each archive carries a requirements.txt that is installed on load",
            facts.DJL_DOCKERFILES,
        )
    if backend == "vllm":
        yield Reason(
            "the catalog writes rolling_batch=disable; vLLM takes an archive of your own", "cohost/catalog/serving.py"
        )
