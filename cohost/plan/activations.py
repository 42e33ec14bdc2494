"""The memory that one forward pass takes beside the weights, from an encoder's shape.

It counts what is alive at the same time in the code of transformers (5.9) in inference mode, phase by phase, and takes
the largest phase. Notation: T = batch x tokens, h = hidden size, I = intermediate size, L = tokens of the longest
text, b = bytes of an element, S = batch x heads x L x L x b (one tensor of attention scores).

`benchmarks/activations.py` holds it against measured peaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cohost.plan.shapes import ModelShape

_INDEX_BYTES: Final = 8
"""Positions and DeBERTa's attention mask are int64."""

_ATTENTION_STATES: Final = 8
"""Tensors of T x h around attention: six by the code, up to two more where a kernel copies heads of few dimensions."""

_TORCH_SCORE_COPIES: Final = 3
"""Scores, masked scores and probabilities, where attention is written out in plain torch."""


def peak_activation_bytes(shape: ModelShape, *, batch: int, tokens: int, element_bytes: int) -> int:
    """Bytes of activations at the worst moment of a forward pass over `batch` texts padded to `tokens` tokens."""
    feed_forward = _feed_forward(shape, batch, tokens, element_bytes)
    match shape.attention:
        case "fused":
            return max(feed_forward, _fused_attention(shape, batch, tokens, element_bytes))
        case "scores":
            return max(feed_forward, _written_out_attention(shape, batch, tokens, element_bytes))
        case "disentangled":
            return max(feed_forward, _disentangled_attention(shape, batch, tokens, element_bytes))


def _feed_forward(shape: ModelShape, batch: int, tokens: int, element_bytes: int) -> int:
    """Input, attention's output and the residual, beside the wide layer before and after its activation function."""
    per_token = 3 * shape.hidden + 2 * shape.intermediate
    return batch * tokens * per_token * element_bytes + _mask_elements(batch, tokens)


def _fused_attention(shape: ModelShape, batch: int, tokens: int, element_bytes: int) -> int:
    """Input, queries, keys, values, output and copies of them; the mask as booleans and as numbers."""
    states = _ATTENTION_STATES * batch * tokens * shape.hidden * element_bytes
    return states + _mask_elements(batch, tokens) * (1 + element_bytes)


def _written_out_attention(shape: ModelShape, batch: int, tokens: int, element_bytes: int) -> int:
    states = _ATTENTION_STATES * batch * tokens * shape.hidden * element_bytes
    return states + _TORCH_SCORE_COPIES * _scores(shape, batch, tokens, element_bytes)


def _disentangled_attention(shape: ModelShape, batch: int, tokens: int, element_bytes: int) -> int:
    """DeBERTa-v2: scores of content and of both kinds of position are alive together.

    Three moments can be the worst: the second gather (four score tensors and the scores against all positions), the
    last sum (five score tensors), or, for few and short texts, the copies of the position embeddings. The outputs of
    all layers are kept, because the model asks its encoder for them.
    """
    scores = _scores(shape, batch, tokens, element_bytes)
    against_positions = batch * shape.heads * tokens * shape.position_span * element_bytes
    positions = shape.position_span * shape.hidden * element_bytes
    states = (shape.layers + 3) * batch * tokens * shape.hidden * element_bytes
    indices = (batch + 3) * tokens * tokens * _INDEX_BYTES
    resident = states + indices + (1 + 2 * batch) * positions
    return resident + max(4 * scores + against_positions, 5 * scores, scores + positions)


def _mask_elements(batch: int, tokens: int) -> int:
    """The attention mask is written out only where texts of different lengths meet, so never for one text."""
    return batch * tokens * tokens if batch > 1 else 0


def _scores(shape: ModelShape, batch: int, tokens: int, element_bytes: int) -> int:
    return batch * shape.heads * tokens * tokens * element_bytes
