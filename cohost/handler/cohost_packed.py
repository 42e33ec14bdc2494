"""The packed forward pass: sequences of different lengths concatenated into a single row, without padding.

Linear layers treat each token alone, so packing changes only two things: attention must stay within each sequence, and
positions must restart at each sequence. So packing needs a model whose attention can be replaced and whose head reads
the first token's vector. Models of the BERT and RoBERTa kind are packed through transformers' attention interface.
DeBERTa needs a library, which the image or the catalog's `packages` must contain. When the model loads, packed outputs
are compared with padded ones.

The weights stay unchanged. Two libraries are called, by the signatures of these versions: disentangled-flash 1.1.1
(`deberta.py`, `packed.py`) runs sequences without padding, on a GPU in Triton and on a CPU in torch; flashdeberta 0.0.8
(`model.py`) is for GPUs only, and pads.
"""

from __future__ import annotations

import copy
import importlib
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from math import isclose
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from .cohost_stream import HostStream
    from .cohost_tokenizer import Encoded

    Ids = npt.NDArray[np.int32]

ATTENTION = "cohost_packed"

_INTERFACE = "ALL_ATTENTION_FUNCTIONS"
_MODEL_TYPES = {"bert", "roberta", "xlm-roberta", "camembert"}
_HALF = {torch.float16, torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Row:
    """Concatenated sequences; `numbers` are their token ids, their positions and, if the model reads any, segments.

    `bounds` are the start indices of the sequences in the row, followed by the row's end.
    """

    numbers: Ids
    bounds: list[int]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a row's sequences, on the host and on the device, and the longest sequence in tokens.

    The bounds exist on both host and device, so that no layer waits for a copy between host and device.
    """

    host: list[int]
    device: torch.Tensor
    longest: int


_BOUNDS: ContextVar[Bounds] = ContextVar("bounds")


class PackedModel:
    """A transformers model that runs packed rows; `padding_token` is the token id of padding in padded passes."""

    def __init__(self, model: Any, *, stream: HostStream, padding_token: int, position_offset: int) -> None:
        self._model = model
        self._base = model.base_model
        self._stream = stream
        self._padding_token = padding_token
        self._offset = position_offset

    def gains_at(self, lengths: Sequence[int]) -> bool:
        """Return True if sequences of these lengths, in tokens, run faster packed into one row than padded."""
        return bool(lengths)

    def vectors(self, encoded: Sequence[Encoded]) -> tuple[torch.Tensor, Bounds]:
        """Return the last hidden layer, of shape (tokens, hidden), and the rows at which its sequences begin."""
        row = pack(encoded, self._padding_token, self._offset)
        # The bounds are copied together with the numbers, because each copy is a call of the driver.
        uploaded = self._stream.upload(np.concatenate([row.numbers.ravel(), row.bounds], dtype=np.int32))
        numbers = uploaded[: row.numbers.size].long().view(len(row.numbers), 1, -1)
        tensors = dict(zip(("input_ids", "position_ids", "token_type_ids"), numbers, strict=False))
        longest = max(end - start for start, end in pairwise(row.bounds))
        bounds = Bounds(row.bounds, uploaded[row.numbers.size :], longest)
        return self._last_layer(tensors, bounds), bounds

    def logits(self, vectors: torch.Tensor, bounds: Bounds) -> torch.Tensor:
        """Return the outputs of the model's head, of shape (sequences, labels)."""
        # A head takes a tensor of shape (batch, tokens, hidden), and reads the first token's vector.
        first = first_vectors(vectors, bounds).unsqueeze(1)
        # BERT's pooler belongs to the model below the head, DeBERTa's to the head, and RoBERTa's head has its own.
        pooler = getattr(self._base, "pooler", None) or getattr(self._model, "pooler", None)
        output: torch.Tensor = self._model.classifier(first if pooler is None else pooler(first))
        return output

    def _last_layer(self, tensors: dict[str, torch.Tensor], bounds: Bounds) -> torch.Tensor:
        """Run the pass itself; `tensors` have the shape (1, tokens), and the result has (tokens, hidden)."""
        raise NotImplementedError


def first_vectors(vectors: torch.Tensor, bounds: Bounds) -> torch.Tensor:
    """Return the vector of each sequence's first token."""
    return vectors.index_select(0, bounds.device[:-1])


def mean_vectors(vectors: torch.Tensor, bounds: Bounds) -> torch.Tensor:
    """Return the mean of each sequence's vectors, computed in one launch."""
    # Without `unsafe`, torch copies the bounds back to the host to check them.
    means: torch.Tensor = torch.segment_reduce(vectors.float(), "mean", offsets=bounds.device, unsafe=True)
    return means


class PackedByAttention(PackedModel):
    """A packed BERT or RoBERTa model, in a version of transformers that looks up the attention function by its name."""

    def __init__(self, model: Any, **keywords: Any) -> None:
        """Prepare the model; raise ValueError for a model that cannot be called in packed form."""
        if not _has_interface(model):
            raise ValueError(f"{model.config.model_type} in this version of transformers has no packed way")
        _register()
        super().__init__(model, **keywords)

    def gains_at(self, lengths: Sequence[int]) -> bool:
        """Return False for equal lengths on a CPU: packing saves no padding, and calls attention once per sequence."""
        return self._stream.is_gpu or len(lengths) == 1 or len(set(lengths)) > 1

    def _last_layer(self, tensors: dict[str, torch.Tensor], bounds: Bounds) -> torch.Tensor:
        with self._attending_within(bounds):
            output: torch.Tensor = self._base(**tensors)[0][0]
        return output

    @contextmanager
    def _attending_within(self, bounds: Bounds) -> Iterator[None]:
        """Let the model use packed attention inside the `with` block, for one pass.

        The model looks up its attention function by name in each pass, and builds no mask if transformers does not know
        the name.
        """
        config = self._base.config
        usual = config._attn_implementation  # noqa: SLF001 - transformers has no other way back and forth
        token = _BOUNDS.set(bounds)
        config._attn_implementation = ATTENTION  # noqa: SLF001 - as above
        try:
            yield
        finally:
            config._attn_implementation = usual  # noqa: SLF001 - as above
            _BOUNDS.reset(token)


def pack(encoded: Sequence[Encoded], padding_token: int, position_offset: int) -> Row:
    """Return sequences as one packed row.

    With an offset, positions are counted in RoBERTa's way: padding tokens inside a text are skipped.
    """
    bounds = [0, *np.cumsum([len(one.ids) for one in encoded]).tolist()]
    positions = [_positions(np.asarray(one.ids), padding_token, position_offset) for one in encoded]
    parts = [[one.ids for one in encoded], positions]
    if encoded[0].segments is not None:
        parts.append([one.segments for one in encoded if one.segments is not None])
    return Row(np.stack([np.concatenate(part, dtype=np.int32) for part in parts]), bounds)


def _positions(ids: Ids, padding_token: int, offset: int) -> Ids:
    if not offset:
        return np.arange(len(ids), dtype=np.int32)
    counted = ids != padding_token
    positions: Ids = np.cumsum(counted, dtype=np.int32) * counted + offset - 1
    return positions


def attention_within(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: Sequence[int], scale: float | None
) -> torch.Tensor:
    """Return attention within each sequence of a row; all tensors have the shape (1, heads, tokens, head size)."""
    parts = [
        scaled_dot_product_attention(query[:, :, a:b], key[:, :, a:b], value[:, :, a:b], scale=scale)
        for a, b in pairwise(bounds)
    ]
    return torch.cat(parts, dim=2)


def _on_gpu(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: Bounds, scale: float | None
) -> torch.Tensor:
    """Return the result of `attention_within`, from one launch of torch's flash attention for varying lengths."""
    from torch.nn.attention.varlen import varlen_attn  # torch below 2.10 has none

    usual = query.shape[-1] ** -0.5
    if scale is not None and not isclose(scale, usual):
        # varlen_attn of torch 2.10 has no argument for the scale.
        query = query * (scale / usual)
    queries, keys, values = (tensor[0].transpose(0, 1).contiguous() for tensor in (query, key, value))
    output = varlen_attn(queries, keys, values, bounds.device, bounds.device, bounds.longest, bounds.longest)
    assert isinstance(output, torch.Tensor)  # noqa: S101 - varlen_attn returns a tuple only if further outputs are requested
    return output.transpose(0, 1).unsqueeze(0)


def _attention(
    _module: Any,  # transformers has no types
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: torch.Tensor | None,
    scaling: float | None = None,
    **_: Any,  # what transformers hands to all attentions
) -> tuple[torch.Tensor, None]:
    """Compute packed attention; the parameters are those that transformers passes to an attention function.

    The shape of the result is (batch, tokens, heads, head size).
    """
    bounds = _BOUNDS.get()
    if query.is_cuda and query.dtype in _HALF:
        output = _on_gpu(query, key, value, bounds, scaling)
    else:
        output = attention_within(query, key, value, bounds.host, scaling)
    return output.transpose(1, 2), None


def takes_prepared_mask(model: Any) -> bool:  # transformers has no types
    """Return True if the model accepts a padded batch's mask in the additive form (numbers added to attention scores).

    Transformers' sdpa copies a mask of any other form back to the host, to check if it hides tokens, and so waits for
    the GPU.
    """
    return _has_interface(model) and model.config._attn_implementation in {"sdpa", "eager"}  # noqa: SLF001 - as above


def _has_interface(model: Any) -> bool:  # as above
    return model.config.model_type in _MODEL_TYPES and hasattr(sys.modules[type(model).__module__], _INTERFACE)


def _register() -> None:
    from transformers import AttentionInterface  # versions without it never get here, see `_has_interface`

    AttentionInterface.register(ATTENTION, _attention)


DISENTANGLED_FLASH = "disentangled-flash"
FLASH_DEBERTA = "flashdeberta"
DEBERTA = "deberta-v2"

_USUAL_ATTENTION = "DisentangledSelfAttention"


class PackedDeberta(PackedModel):
    """A DeBERTa-v2 or v3 model whose packed passes use disentangled-flash; its padded passes are unchanged."""

    def __init__(self, model: Any, *, stream: HostStream, **keywords: Any) -> None:  # transformers has no types
        """Prepare the model.

        Raises:
            ImportError: the library is not installed.
            ValueError: the library does not support the model or the GPU.
        """
        if model.config.model_type != DEBERTA:
            raise ValueError(f"{DISENTANGLED_FLASH} is for {DEBERTA}, and this is {model.config.model_type}")
        library = importlib.import_module("disentangled_flash")
        super().__init__(model, stream=stream, **keywords)
        # The library replaces the encoder of the model that it is given, and its own encoder cannot run padded batches
        # of every length.
        base = _twin(self._base)
        # "auto" leaves the model unchanged if the library's kernels do not suit the GPU; on a CPU it always would.
        library.optimize_deberta(base, backend="auto" if stream.is_gpu else "torch")
        if not hasattr(base.encoder, "forward_packed"):
            raise ValueError(f"{DISENTANGLED_FLASH} has no kernel for this model on this GPU")
        self._describe: Callable[..., Any] = library.PackedSequenceInfo
        self._embeddings: Any = base.embeddings
        self._encoder: Any = base.encoder

    def _last_layer(self, tensors: dict[str, torch.Tensor], bounds: Bounds) -> torch.Tensor:
        lengths = tuple(end - start for start, end in pairwise(bounds.host))
        info = self._describe(tuple(bounds.host), lengths, bounds.longest)
        output = self._encoder.forward_packed(
            self._embeddings(**tensors)[0], bounds.device, bounds.longest, output_hidden_states=False, packed_info=info
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden


def keep_relative_positions(model: Any, limit: int) -> None:  # transformers has no types
    """Let all padded passes of a DeBERTa model share one table of relative positions, instead of one table per pass.

    A table entry depends only on the distance between two tokens, so the table for a shorter text is the upper left
    corner of the largest table.
    """
    if model.config.model_type != DEBERTA or not model.config.relative_attention:
        return
    encoder = model.base_model.encoder
    sizes = torch.empty(1, limit, 1, device=model.device)
    table = encoder.get_rel_pos(sizes)

    def get_rel_pos(hidden_states: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        length = hidden_states.size(-2)
        corner: torch.Tensor = table[:, :length, :length]
        return corner

    encoder.get_rel_pos = get_rel_pos


def use_flash_deberta(model: Any) -> Callable[[], None]:  # transformers has no types
    """Let each layer of a DeBERTa use flashdeberta's attention, and return a function that restores the original.

    Raises:
        ImportError: the library, or Triton, is not installed.
        ValueError: the model does not have transformers' disentangled attention.
    """
    if model.config.model_type != DEBERTA:
        raise ValueError(f"{FLASH_DEBERTA} is for {DEBERTA}, and this is {model.config.model_type}")
    library = importlib.import_module("flashdeberta")
    usual = getattr(sys.modules[type(model).__module__], _USUAL_ATTENTION)
    layers = [module for module in model.modules() if type(module) is usual]

    def become(kind: type) -> None:
        # The library's class is a subclass of transformers' class, with the same members and another computation.
        for layer in layers:
            layer.__class__ = kind

    become(library.FlashDisentangledSelfAttention)
    return lambda: become(usual)


def _twin(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of the modules that shares their weights; a module replaced in the copy stays in the original."""
    twin = copy.copy(module)
    # A shallow copy shares the dictionary of its children with the original.
    twin._modules = {  # noqa: SLF001 - torch has no other way
        name: None if child is None else _twin(child)
        for name, child in module._modules.items()  # noqa: SLF001 - as above
    }
    return twin
