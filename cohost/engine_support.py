"""Judge which backends (handler and engine) can serve each model of a catalog, with the reasons against the others.

`cohost engines` shows the verdicts; every `cdk synth` rejects a catalog by the same rules. A verdict takes into account
the model itself, and the image and the instance type that the catalog names.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from cohost.archives.model_checks import means_entailment
from cohost.designs.onnx.recipe import cpu_design
from cohost.forecast.plan.model_files import CONFIG, Folder, read_config
from cohost.hardware.images import parse_image
from cohost.hardware.instances import INSTANCES
from cohost.routing import MULTI_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cohost.catalog.models import Catalog, ModelEntry
    from cohost.forecast.plan.profiles import Profile
    from cohost.hardware.images import Image


_FEATURES: Final = "feature-extraction"
_ZERO_SHOT: Final = "zero-shot-classification"
_LEAST_ENTAILMENT_LABELS: Final = 2


@dataclass(frozen=True)
class Reason:
    """A fact that speaks against a backend, with its source; if `certain` is False, the backend may still work."""

    text: str
    source: str
    certain: bool = True


def head_faults(model: ModelFacts) -> Iterator[Reason]:
    """Yield a reason if the model's weights lack a part that its task needs: a head, or a label for entailment."""
    if model.task == _FEATURES:
        return
    if model.has_head is False:
        yield Reason(
            f"{model.architecture} was saved without a head for {model.task}, so its answers would be random",
            TRANSFORMERS,
        )
    elif model.task == _ZERO_SHOT and _cannot_entail(model):
        yield Reason(f"none of its {model.labels} labels means entailment, which {model.task} reads", ZERO_SHOT)


def _cannot_entail(model: ModelFacts) -> bool:
    if model.entails is not None:
        return not model.entails
    return model.labels is not None and model.labels < _LEAST_ENTAILMENT_LABELS


def _transformers(model: ModelFacts) -> Iterator[Reason]:
    yield from head_faults(model)
    if model.architecture is None:
        yield _not_known(model)


def _shared(model: ModelFacts) -> Iterator[Reason]:
    yield from _transformers(model)
    if model.own_code:
        yield Reason("trust_remote_code: one model's own code could change all models of the engine process", OWN_RULE)


def _onnx(model: ModelFacts) -> Iterator[Reason]:
    yield from head_faults(model)
    if model.own_code:
        yield Reason("trust_remote_code: the model's own code is not exported", OWN_EXPORT_CODE)
    if model.model_type is None:
        yield _not_known(model)
    elif model.model_type not in EXPORTED:
        yield Reason(
            f"model_type {model.model_type} is untested; the export's own check decides",
            OWN_EXPORT,
            certain=False,
        )


def _vllm(model: ModelFacts) -> Iterator[Reason]:
    if model.deberta:
        yield Reason("vLLM has no DeBERTa", VLLM_DEBERTA)
    if model.task != _FEATURES:
        yield Reason(f"DJL's vLLM service answers text and vectors, not {model.task}", DJL_VLLM)
    elif model.architecture is None:
        yield _not_known(model)
    elif model.architecture not in VLLM_EMBEDDINGS and not model.deberta:
        yield Reason(
            f"{model.architecture} is not in vLLM's table of encoders; its transformers backend may run it",
            VLLM_REGISTRY,
            certain=False,
        )


def _trtllm(model: ModelFacts) -> Iterator[Reason]:
    yield Reason("DJL's TensorRT-LLM service answers generated text alone", DJL_TRTLLM)
    if model.architecture is not None and model.architecture not in TRTLLM_ENCODERS:
        yield Reason(f"TensorRT-LLM's runtime has no {model.architecture}", TRTLLM_MODELS)


def _not_known(model: ModelFacts) -> Reason:
    return Reason(
        f"its architecture is not known; fix: cohost models inspect {model.name} --write", model.source, certain=False
    )


# For each backend, the function that yields the reasons in the model against it. Without a reason, the backend serves.
_RULES: Final[dict[Backend, Callable[[ModelFacts], Iterator[Reason]]]] = {
    "stock": _transformers,
    "batched": _transformers,
    "shared": _shared,
    "onnx": _onnx,
    "vllm": _vllm,
    "trtllm": _trtllm,
}


Answer = Literal["yes", "no", "unknown"]

_ON_A_GPU: Final = ("vllm", "trtllm")
_CPU_FULL: Final = "cpu-full"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer for one model and one backend.

    `serves` says if the backend can serve the model in the image that suits the backend best; `here` says if the
    backend can serve it in the catalog's image, topology and instance type. `against` has the reasons in the model;
    `place` has the reasons in the image, the topology and the instance type. `notes` are remarks that do not exclude
    the backend.
    """

    serves: Answer
    here: bool
    against: tuple[Reason, ...]
    place: tuple[Reason, ...]
    notes: tuple[Reason, ...]

    @property
    def word(self) -> str:
        """Return the text in the table of `cohost engines`: "yes", "no", "unknown" or "other image"."""
        return "other image" if self.serves == "yes" and not self.here else self.serves


@dataclass(frozen=True, kw_only=True)
class ModelVerdicts:
    """The facts about one model, with the verdict for each backend."""

    model: ModelFacts
    backends: dict[Backend, Verdict]

    def as_data(self) -> dict[str, Any]:
        """Return the facts and the verdicts as data for JSON."""
        return {**asdict(self.model), "backends": asdict(self)["backends"]}


def judge(
    catalog: Catalog, profiles: Mapping[str, Profile], names: Iterable[str], hubs: Sequence[Path] = ()
) -> list[ModelVerdicts]:
    """Return the verdicts of all backends for each named model of a catalog.

    Args:
        catalog: the catalog.
        profiles: the profiles in the file beside the catalog, by model id.
        names: the names of the models in the catalog.
        hubs: folders of models laid out as org/name, whose config.json replaces a profile.

    Raises:
        ImageError: the catalog names an image that is not known.
        PlanError: a model's config.json in one of the folders is not a JSON object.
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
    """Return the catalog key of a backend's image, and the image; the backend onnx has the image of the CPU design."""
    if backend == "onnx":
        return "designs.cpu-onnx.image", parse_image(cpu_design(catalog).image)
    return "endpoint.image", parse_image(catalog.endpoint.image)


def _place(backend: Backend, catalog: Catalog) -> Iterator[Reason]:
    """Yield the reasons against a backend in the catalog's image, topology and instance type."""
    key, image = _image_of(backend, catalog)
    reference = f"{image.repository}:{image.tag}"
    engine = ENGINE_NAMES[backend]
    if engine not in image.backends:
        has = ", ".join(sorted(image.backends)) or "none of DJL Serving's engines"
        yield Reason(f"{key} {reference} has no {engine} (it has {has})", IMAGE_TABLE)
    if not image.multi_model and (backend == "onnx" or catalog.endpoint.topology == MULTI_MODEL):
        yield Reason(
            f"{key} {reference} lacks the multi-model label, so it serves one model an endpoint or component",
            SAGEMAKER_LABEL,
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
            DJL_DOCKERFILES,
        )
    if backend == "vllm":
        yield Reason(
            "the catalog writes rolling_batch=disable; vLLM needs your own archive", "cohost/catalog/serving.py"
        )


Backend = Literal["stock", "batched", "shared", "onnx", "vllm", "trtllm"]
BACKENDS: Final[tuple[Backend, ...]] = ("stock", "batched", "shared", "onnx", "vllm", "trtllm")

FACTS_DATED: Final = "2026-11-30"

ENGINE_NAMES: Final[dict[Backend, str]] = {
    "stock": "python",
    "batched": "python",
    "shared": "python",
    "onnx": "onnxruntime",
    "vllm": "vllm",
    "trtllm": "trtllm",
}
"""The engine's name in `Image.backends` (cohost/hardware/images.py), by backend."""

TRANSFORMERS: Final = "transformers 4.56 and 5.9: AutoModelForSequenceClassification randomly sets a missing head"
TRANSFORMERS_SDPA: Final = "transformers 4.56 and 5.9: DebertaV2PreTrainedModel has no _supports_sdpa"
ZERO_SHOT: Final = "transformers 5.9: ZeroShotClassificationPipeline.entailment_id"
OWN_RULE: Final = "cohost/catalog/sections/rules.py"
OWN_EXPORT: Final = "cohost export-onnx: tested with these architectures against torch"
OWN_EXPORT_CODE: Final = "cohost export-onnx: loads a model without trust_remote_code"
DJL_DOCKERFILES: Final = "DJL Serving 0.36.0: serving/docker/Dockerfile, lmi.Dockerfile, tensorrt-llm.Dockerfile"
DJL_VLLM: Final = "DJL Serving 0.36.0: lmi_vllm/vllm_async_service.py, ServingEmbedding is the only pooling service"
DJL_TRTLLM: Final = "DJL Serving 0.36.0: lmi_trtllm/trtllm_async_service.py hands every call to generate_async"
VLLM_REGISTRY: Final = "vLLM: vllm/model_executor/models/registry.py at 0002bff"
VLLM_DEBERTA: Final = f"{VLLM_REGISTRY}; its pull request 42094, which adds DeBERTa, was open on 2026-05-09"
TRTLLM_MODELS: Final = "TensorRT-LLM: tensorrt_llm/_torch/models/__init__.py at 015fb89"
SAGEMAKER_LABEL: Final = "SageMaker developer guide: custom containers of multi-model endpoints; labels of the image"
IMAGE_TABLE: Final = "cohost/hardware/images.py, from the Dockerfiles of DJL Serving 0.36.0 and AWS's list of images"

DEBERTA: Final = frozenset({"deberta", "deberta-v2"})
"""Values of `model_type` in config.json that have DeBERTa's disentangled attention."""

EXPORTED: Final = frozenset({"bert", "roberta", "xlm-roberta", "deberta-v2"})
"""Values of `model_type` in config.json for which tests compare the ONNX export's answers with torch's."""

VLLM_EMBEDDINGS: Final = frozenset(
    {
        *("BertModel", "RobertaModel", "RobertaForMaskedLM", "XLMRobertaModel"),
        *("ModernBertModel", "NomicBertModel", "GteModel", "GteNewModel"),
    }
)
"""Architectures of encoders that vLLM implements itself and serves embeddings with."""

TRTLLM_ENCODERS: Final = frozenset({"BertForSequenceClassification"})
"""Architectures of encoders among the models of TensorRT-LLM's own runtime."""

HEAD_SUFFIX: Final = "ForSequenceClassification"
"""The suffix of the name of every architecture that has a head for text-classification."""


UNKNOWN_SOURCE: Final = "the catalog's entry alone"


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The facts about one model on which the verdicts depend; None means that a fact is not known.

    `architecture` and `model_type` are values of config.json. `labels` is the number of the classification head's
    labels. `entails` is True if a label starts with "entail". `own_code` is the catalog's `trust_remote_code`. `source`
    names the place that `architecture`, `model_type`, `labels` and `entails` were read from.
    """

    name: str
    model_id: str
    task: str
    architecture: str | None
    model_type: str | None
    labels: int | None
    entails: bool | None
    own_code: bool
    source: str

    @property
    def has_head(self) -> bool | None:
        """Return True if the model was saved with a classification head; None if its architecture is not known."""
        return None if self.architecture is None else self.architecture.endswith(HEAD_SUFFIX)

    @property
    def deberta(self) -> bool:
        """Return True if the model is known to have DeBERTa's disentangled attention."""
        return self.model_type in DEBERTA


def facts_of(name: str, entry: ModelEntry, profiles: Mapping[str, Profile], hubs: Sequence[Path] = ()) -> ModelFacts:
    """Return the known facts about a model.

    Args:
        name: the model's name in the catalog.
        entry: the model's entry in the catalog.
        profiles: the profiles (stored config.json and weight sizes) in the file beside the catalog, by model id.
        hubs: folders of models laid out as org/name. A config.json of the model there replaces its profile; the first
            folder that has one is used.

    Raises:
        PlanError: a local config.json is not a JSON object.
    """
    config, source = _config_of(entry, profiles, hubs)
    architectures = config.get("architectures") or [None]
    labels = config.get("id2label")
    return ModelFacts(
        name=name,
        model_id=entry.model_id,
        task=entry.task,
        architecture=architectures[0],
        model_type=config.get("model_type"),
        labels=len(labels) if labels else config.get("num_labels"),
        entails=any(map(means_entailment, labels.values())) if labels else None,
        own_code=bool(entry.trust_remote_code),
        source=source,
    )


def _config_of(
    entry: ModelEntry, profiles: Mapping[str, Profile], hubs: Sequence[Path]
) -> tuple[Mapping[str, Any], str]:
    for hub in hubs:
        folder = hub / entry.model_id
        if (folder / CONFIG).is_file():
            return read_config(Folder(folder)), str(folder / CONFIG)
    profile = profiles.get(entry.model_id)
    return ({}, UNKNOWN_SOURCE) if profile is None else (profile.config, "the profile beside the catalog")
