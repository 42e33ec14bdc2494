"""The shape of an encoder by its config.json, its number of parameters, and its activations in a forward pass.

Activations are the memory of a pass in addition to the weights. The estimate counts the tensors that are alive at the
same time in the code of transformers (5.9) in inference mode, phase by phase, and takes the largest phase.
`benchmarks/activations.py` compares it with measured peaks. Notation:

    T = batch x tokens
    h = hidden size
    I = intermediate size
    L = tokens of the longest text
    b = bytes per element
    S = batch x heads x L x L x b (one tensor of attention scores)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from cohost.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping


Attention = Literal["fused", "scores", "disentangled"]

# Model types for which transformers uses torch's fused attention kernel, which never writes the scores to memory.
_FUSED: Final = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "distilbert"})
_DISENTANGLED: Final = frozenset({"deberta", "deberta-v2"})
_ROBERTA_LIKE: Final = frozenset({"roberta", "xlm-roberta", "camembert", "mpnet"})

# Positions start after the padding index in RoBERTa-like models, so two of them are never used.
_RESERVED_POSITIONS: Final = 2
_DEFAULT_LABELS: Final = 2

# DistilBERT's names for the same keys of config.json.
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
}


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """An encoder's dimensions, all in elements; `labels` is 0 for a model without a classification head.

    `position_span` is the number of relative positions of DeBERTa (twice its buckets), else 0.
    """

    model_type: str
    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    positions: int
    token_types: int
    position_span: int
    absolute_positions: bool
    labels: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ModelShape:
        """Read the content of a config.json.

        Raises:
            PlanError: a dimension is missing or not a whole number of 1 or more.
        """
        model_type = str(config.get("model_type", "unknown"))
        return cls(
            model_type=model_type,
            hidden=_dimension(config, "hidden_size"),
            layers=_dimension(config, "num_hidden_layers"),
            heads=_dimension(config, "num_attention_heads"),
            intermediate=_dimension(config, "intermediate_size"),
            vocabulary=_dimension(config, "vocab_size"),
            positions=_dimension(config, "max_position_embeddings"),
            token_types=int(config.get("type_vocab_size", 0)),
            position_span=_position_span(config, model_type),
            absolute_positions=bool(config.get("position_biased_input", True)),
            labels=_labels(config),
        )

    @property
    def attention(self) -> Attention:
        """Return the kind of attention; "scores", the costliest, for any model type that is not known to be better."""
        if self.model_type in _DISENTANGLED and self.position_span:
            return "disentangled"
        return "fused" if self.model_type in _FUSED else "scores"

    @property
    def longest_input(self) -> int:
        """Return the tokens of the longest input that the position table allows, special tokens included."""
        return self.positions - (_RESERVED_POSITIONS if self.model_type in _ROBERTA_LIKE else 0)


def parameter_count(shape: ModelShape) -> int:
    """Return the parameters of a BERT, XLM-RoBERTa or DeBERTa-v2 model with its head, as transformers builds it.

    Raises:
        PlanError: the architecture is another one, so its size can only be read from its weights.
    """
    if shape.model_type not in {"bert", "roberta", "xlm-roberta", "deberta-v2"}:
        raise PlanError(
            f"model_type: {shape.model_type!r} has no formula for its parameters; allowed: bert, roberta, "
            "xlm-roberta, deberta-v2; fix: run `cohost models inspect`, which reads the sizes from the weights"
        )
    hidden = shape.hidden
    absolute = shape.positions * hidden if shape.absolute_positions else 0
    embeddings = (shape.vocabulary + shape.token_types) * hidden + absolute + 2 * hidden
    relative = shape.position_span * hidden + 2 * hidden if shape.position_span else 0
    return embeddings + shape.layers * _layer(hidden, shape.intermediate) + relative + _head(shape)


def _layer(hidden: int, intermediate: int) -> int:
    attention = 4 * _linear(hidden, hidden)
    return attention + _linear(hidden, intermediate) + _linear(intermediate, hidden) + 2 * 2 * hidden


def _head(shape: ModelShape) -> int:
    """Return the parameters of pooler and classifier; without a classifier, only BERT and RoBERTa have a pooler."""
    pooler = _linear(shape.hidden, shape.hidden)
    if not shape.labels:
        return pooler if shape.model_type in {"bert", "xlm-roberta", "roberta"} else 0
    return pooler + _linear(shape.hidden, shape.labels)


def _linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def _dimension(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key, config.get(_OTHER_NAMES.get(key, key)))
    if type(value) is not int or value < 1:
        raise PlanError(
            f"config.json: {key} is {value!r}; allowed: a whole number of 1 or more; fix: use the config.json of an "
            "encoder, as save_pretrained writes it"
        )
    return value


def _position_span(config: Mapping[str, Any], model_type: str) -> int:
    if model_type not in _DISENTANGLED or not config.get("relative_attention", False):
        return 0
    buckets = int(config.get("position_buckets", -1))
    furthest = int(config.get("max_relative_positions", -1))
    if furthest < 1:
        furthest = _dimension(config, "max_position_embeddings")
    return 2 * (buckets if buckets > 0 else furthest)


def _labels(config: Mapping[str, Any]) -> int:
    architectures = config.get("architectures") or [""]
    if not str(architectures[0]).endswith("ForSequenceClassification"):
        return 0
    return int(config.get("num_labels", len(config.get("id2label") or ()) or _DEFAULT_LABELS))


_INDEX_BYTES: Final = 8
"""Bytes of an int64, the dtype of positions and of DeBERTa's attention mask."""

_ATTENTION_STATES: Final = 8
"""Tensors of T x h around attention: six by the code, up to two more for kernels that copy heads of few dimensions."""

_TORCH_SCORE_COPIES: Final = 3
"""Scores, masked scores and probabilities, for attention written in plain torch."""


def peak_activation_bytes(shape: ModelShape, *, batch: int, tokens: int, element_bytes: int) -> int:
    """Return the bytes of activations at the peak of a forward pass over `batch` texts padded to `tokens` tokens."""
    feed_forward = _feed_forward(shape, batch, tokens, element_bytes)
    match shape.attention:
        case "fused":
            return max(feed_forward, _fused_attention(shape, batch, tokens, element_bytes))
        case "scores":
            return max(feed_forward, _written_out_attention(shape, batch, tokens, element_bytes))
        case "disentangled":
            return max(feed_forward, _disentangled_attention(shape, batch, tokens, element_bytes))


def _feed_forward(shape: ModelShape, batch: int, tokens: int, element_bytes: int) -> int:
    """Return the bytes of a layer's wide part.

    They are input, attention's output and the residual, plus the wide layer before and after its activation function.
    """
    per_token = 3 * shape.hidden + 2 * shape.intermediate
    return batch * tokens * per_token * element_bytes + _mask_elements(batch, tokens)


def _fused_attention(shape: ModelShape, batch: int, tokens: int, element_bytes: int) -> int:
    """Return the bytes of fused attention.

    They are input, queries, keys, values, output and copies of them, plus the mask as booleans and as numbers.
    """
    states = _ATTENTION_STATES * batch * tokens * shape.hidden * element_bytes
    return states + _mask_elements(batch, tokens) * (1 + element_bytes)


def _written_out_attention(shape: ModelShape, batch: int, tokens: int, element_bytes: int) -> int:
    states = _ATTENTION_STATES * batch * tokens * shape.hidden * element_bytes
    return states + _TORCH_SCORE_COPIES * _scores(shape, batch, tokens, element_bytes)


def _disentangled_attention(shape: ModelShape, batch: int, tokens: int, element_bytes: int) -> int:
    """Return the bytes of DeBERTa-v2's attention.

    Scores of content and of both kinds of position are alive together. Three moments can be the peak: the second gather
    (four score tensors and the scores against all positions), the last sum (five score tensors), or, for few and short
    texts, the copies of the position embeddings. The outputs of all layers are kept, because the model requests them
    from its encoder.
    """
    scores = _scores(shape, batch, tokens, element_bytes)
    against_positions = batch * shape.heads * tokens * shape.position_span * element_bytes
    positions = shape.position_span * shape.hidden * element_bytes
    states = (shape.layers + 3) * batch * tokens * shape.hidden * element_bytes
    indices = (batch + 3) * tokens * tokens * _INDEX_BYTES
    resident = states + indices + (1 + 2 * batch) * positions
    return resident + max(4 * scores + against_positions, 5 * scores, scores + positions)


def _mask_elements(batch: int, tokens: int) -> int:
    """Return the elements of the attention mask, which exists only for texts of different lengths."""
    return batch * tokens * tokens if batch > 1 else 0


def _scores(shape: ModelShape, batch: int, tokens: int, element_bytes: int) -> int:
    return batch * shape.heads * tokens * tokens * element_bytes
