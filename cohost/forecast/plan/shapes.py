"""Compute an encoder's shape from its config.json, and the memory of its activations in a forward pass.

Activations are the memory of a pass in addition to the weights. The estimate follows the code of transformers (5.9) in
inference mode: it sums, for each phase of a pass, the tensors that are alive at the same time, and takes the largest
phase. `benchmarks/activations.py` compares the estimate with measured peaks. Notation:

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

# Positions start after the padding index in RoBERTa-like models, so two positions are never used.
_RESERVED_POSITIONS: Final = 2

# The keys of config.json that DistilBERT names differently, by the usual name.
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
}


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The dimensions of an encoder; `position_span` is the number of relative positions of a DeBERTa model, else 0."""

    model_type: str
    hidden: int
    layers: int
    heads: int
    intermediate: int
    positions: int
    token_types: int
    position_span: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ModelShape:
        """Return the shape of the encoder that a config.json describes.

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
            positions=_dimension(config, "max_position_embeddings"),
            token_types=int(config.get("type_vocab_size", 0)),
            position_span=_position_span(config, model_type),
        )

    @property
    def attention(self) -> Attention:
        """Return the kind of attention of the model type; "scores" (score matrices in memory) for an unknown type."""
        if self.model_type in _DISENTANGLED and self.position_span:
            return "disentangled"
        return "fused" if self.model_type in _FUSED else "scores"

    @property
    def longest_input(self) -> int:
        """Return the longest input that the position table allows, in tokens, special tokens included."""
        return self.positions - (_RESERVED_POSITIONS if self.model_type in _ROBERTA_LIKE else 0)


def _dimension(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key, config.get(_OTHER_NAMES.get(key, key)))
    if type(value) is not int or value < 1:
        raise PlanError(
            "config-invalid",
            "config.json",
            f"{key} is {value!r}",
            allowed="a whole number of 1 or more",
            fix="use the config.json of an encoder, as save_pretrained writes it",
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


_INDEX_BYTES: Final = 8
"""Bytes of an int64, the dtype of positions and of DeBERTa's attention mask."""

_ATTENTION_STATES: Final = 8
"""The number of T x h tensors around attention: six by the code, and two for kernels that copy heads of few dimensions.
"""

_TORCH_SCORE_COPIES: Final = 3
"""The number of S-sized tensors of attention written in plain torch: scores, masked scores and probabilities."""


def peak_activation_bytes(shape: ModelShape, *, batch: int, tokens: int, element_bytes: int) -> int:
    """Return the bytes of activations at the peak of a forward pass over `batch` texts padded to `tokens` tokens."""
    tokens_in_all = batch * tokens
    mask = tokens * tokens_in_all if batch > 1 else 0  # the mask exists only for texts of different lengths
    scores = shape.heads * tokens * tokens_in_all * element_bytes
    # T x h: input, attention's output and the residual. T x I: the wide layer before and after its activation function.
    feed_forward = tokens_in_all * (3 * shape.hidden + 2 * shape.intermediate) * element_bytes + mask
    states = _ATTENTION_STATES * tokens_in_all * shape.hidden * element_bytes
    match shape.attention:
        case "fused":  # the mask exists twice: as booleans and as numbers
            return max(feed_forward, states + mask * (1 + element_bytes))
        case "scores":
            return max(feed_forward, states + _TORCH_SCORE_COPIES * scores)
        case "disentangled":
            return max(feed_forward, _disentangled_attention(shape, batch, tokens, element_bytes))


def _disentangled_attention(shape: ModelShape, batch: int, tokens: int, element_bytes: int) -> int:
    """Return the peak of DeBERTa-v2's attention, in bytes.

    The content scores and both kinds of position scores are in memory at the same time. The peak of memory is at one of
    three moments: the second gather (four score tensors and the scores against all positions), the last sum (five score
    tensors), or, for few and short texts, the copies of the position embeddings. The outputs of all layers are kept,
    because the model requests them from its encoder.
    """
    scores = batch * shape.heads * tokens * tokens * element_bytes
    against_positions = batch * shape.heads * tokens * shape.position_span * element_bytes
    positions = shape.position_span * shape.hidden * element_bytes
    states = (shape.layers + 3) * batch * tokens * shape.hidden * element_bytes
    indices = (batch + 3) * tokens * tokens * _INDEX_BYTES
    resident = states + indices + (1 + 2 * batch) * positions
    return resident + max(4 * scores + against_positions, 5 * scores, scores + positions)
