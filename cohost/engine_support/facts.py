"""Known facts about the backends, each with its source, and about one model.

Dated plain data: a later version of a server may support more. Nothing here uses the network. The facts about a model
are its architecture, from a local config.json or else from the profile beside the catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from cohost.archives.model_checks import means_entailment
from cohost.forecast.plan.model_files import CONFIG, Folder, read_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cohost.catalog.models import ModelEntry
    from cohost.forecast.plan.profiles import Profile


Backend = Literal["stock", "batched", "onnx", "vllm", "trtllm"]
BACKENDS: Final[tuple[Backend, ...]] = ("stock", "batched", "onnx", "vllm", "trtllm")

FACTS_DATED: Final = "2026-11-30"

ENGINE_NAMES: Final[dict[Backend, str]] = {
    "stock": "python",
    "batched": "python",
    "onnx": "onnxruntime",
    "vllm": "vllm",
    "trtllm": "trtllm",
}
"""The engine's name in the table of images, by backend."""

TRANSFORMERS: Final = "transformers 4.56 and 5.9: AutoModelForSequenceClassification makes up a head that is missing"
TRANSFORMERS_SDPA: Final = "transformers 4.56 and 5.9: DebertaV2PreTrainedModel has no _supports_sdpa"
ZERO_SHOT: Final = "transformers 5.9: ZeroShotClassificationPipeline.entailment_id"
OWN_EXPORT: Final = "cohost export-onnx: tried with these architectures, held against torch"
OWN_EXPORT_CODE: Final = "cohost export-onnx: loads a model without code of its own"
DJL_DOCKERFILES: Final = "DJL Serving 0.36.0: serving/docker/Dockerfile, lmi.Dockerfile, tensorrt-llm.Dockerfile"
DJL_VLLM: Final = "DJL Serving 0.36.0: lmi_vllm/vllm_async_service.py, ServingEmbedding is the only pooling service"
DJL_TRTLLM: Final = "DJL Serving 0.36.0: lmi_trtllm/trtllm_async_service.py hands every call to generate_async"
VLLM_REGISTRY: Final = "vLLM: vllm/model_executor/models/registry.py at 0002bff"
VLLM_DEBERTA: Final = f"{VLLM_REGISTRY}; its pull request 42094, which adds DeBERTa, was open on 2026-05-09"
TRTLLM_MODELS: Final = "TensorRT-LLM: tensorrt_llm/_torch/models/__init__.py at 015fb89"
SAGEMAKER_LABEL: Final = "SageMaker developer guide: custom containers of multi-model endpoints; labels of the image"
IMAGE_TABLE: Final = "cohost/hardware/images.py, from the Dockerfiles of DJL Serving 0.36.0 and AWS's list of images"

DEBERTA: Final = frozenset({"deberta", "deberta-v2"})
"""Model types with disentangled attention, as written in config.json."""

EXPORTED: Final = frozenset({"bert", "roberta", "xlm-roberta", "deberta-v2"})
"""Model types for which tests compare the export with torch."""

VLLM_EMBEDDINGS: Final = frozenset(
    {
        *("BertModel", "RobertaModel", "RobertaForMaskedLM", "XLMRobertaModel"),
        *("ModernBertModel", "NomicBertModel", "GteModel", "GteNewModel"),
    }
)
"""Encoders that vLLM implements itself, for embeddings."""

TRTLLM_ENCODERS: Final = frozenset({"BertForSequenceClassification"})
"""Encoders among the models of TensorRT-LLM's own runtime."""

HEAD_SUFFIX: Final = "ForSequenceClassification"
"""The suffix of every architecture name that has a head for text-classification."""


UNKNOWN_SOURCE: Final = "the catalog's entry alone"


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The known facts about one model; None is not known.

    `architecture` and `model_type` are config.json's, `labels` is the size of its head, `entails` is true if one of its
    labels starts with "entail", `source` names the file that all of it was read from.
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
        name: its name in the catalog.
        entry: its entry there.
        profiles: the profiles beside the catalog, by model id.
        hubs: folders of models laid out as org/name; the first that has the model's config.json wins over its profile.

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
