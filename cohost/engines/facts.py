"""What is known of the backends, each fact with the place where it was read.

Dated plain data: a later version of a server may know more. Nothing here asks the network.
"""

from __future__ import annotations

from typing import Final, Literal

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
"""What the table of images calls the engine that a backend needs."""

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
IMAGE_TABLE: Final = "cohost/images.py, from the Dockerfiles of DJL Serving 0.36.0 and AWS's list of images"

DEBERTA: Final = frozenset({"deberta", "deberta-v2"})
"""Model types with disentangled attention, as config.json writes them."""

EXPORTED: Final = frozenset({"bert", "roberta", "xlm-roberta", "deberta-v2"})
"""Model types whose export our tests hold against torch."""

VLLM_EMBEDDINGS: Final = frozenset(
    {
        *("BertModel", "RobertaModel", "RobertaForMaskedLM", "XLMRobertaModel"),
        *("ModernBertModel", "NomicBertModel", "GteModel", "GteNewModel"),
    }
)
"""Encoders that vLLM has an implementation of its own of, for vectors."""

TRTLLM_ENCODERS: Final = frozenset({"BertForSequenceClassification"})
"""Encoders among the models of TensorRT-LLM's own runtime."""

HEAD_SUFFIX: Final = "ForSequenceClassification"
"""Ends the name of every architecture with a head for text-classification."""
