"""The packed forward pass: sequences of different lengths concatenated into a single row, without padding.

Linear layers are independent of the sequence that a token belongs to; only attention must stay within each sequence,
and positions must restart. So packing needs models with replaceable attention and a head that reads the first token's
vector: BERT and RoBERTa kinds by transformers' attention interface, DeBERTa by a library, if the image or the catalog's
`packages` contain one. When the model loads, packed outputs are compared with padded ones.

The weights stay unchanged. The signatures are those of disentangled-flash 1.1.1 (`deberta.py`, `packed.py`), which runs
sequences without padding, on a GPU in Triton and on a CPU in torch, and of flashdeberta 0.0.8 (`model.py`), which is
for GPUs and pads.
"""

from __future__ import annotations

import copy
import importlib
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from .cohost_device import to_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from .cohost_tokenizer import Encoded

    Ids = npt.NDArray[np.int64]

ATTENTION = "cohost_packed"

_INTERFACE = "ALL_ATTENTION_FUNCTIONS"
_MODEL_TYPES = {"bert", "roberta", "xlm-roberta", "camembert"}
_HALF = {torch.float16, torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Row:
    """Concatenated sequences, each array 1 by tokens; `bounds` are their start indices, and the end."""

    ids: Ids
    positions: Ids
    segments: Ids | None
    bounds: list[int]


_BOUNDS: ContextVar[list[int]] = ContextVar("bounds")


class PackedModel:
    """A model of transformers that is called with a row; `padding_token` is the token id of padding elsewhere."""

    def __init__(self, model: Any, *, device: torch.device, padding_token: int, position_offset: int) -> None:
        self._model = model
        self._base = model.base_model
        self._to_device = to_gpu if device.type == "cuda" else torch.Tensor.to
        self._device = device
        self._padding_token = padding_token
        self._offset = position_offset

    def vectors(self, encoded: Sequence[Encoded]) -> tuple[torch.Tensor, list[int]]:
        """Return the last hidden layer, tokens by hidden, and the bounds of each sequence in it."""
        row = pack(encoded, self._padding_token, self._offset)
        arguments = {"input_ids": row.ids, "position_ids": row.positions, "token_type_ids": row.segments}
        tensors = {
            name: self._to_device(torch.from_numpy(array), self._device)
            for name, array in arguments.items()
            if array is not None
        }
        return self._last_layer(tensors, row.bounds), row.bounds

    def logits(self, encoded: Sequence[Encoded]) -> torch.Tensor:
        """Return the head's outputs, sequences by labels."""
        vectors, bounds = self.vectors(encoded)
        # The heads take batch by tokens by hidden, and read the first token.
        first = vectors[bounds[:-1]].unsqueeze(1)
        # BERT's pooler belongs to the model below the head, DeBERTa's to the head, and RoBERTa's head has its own.
        pooler = getattr(self._base, "pooler", None) or getattr(self._model, "pooler", None)
        output: torch.Tensor = self._model.classifier(first if pooler is None else pooler(first))
        return output

    def _last_layer(self, tensors: dict[str, torch.Tensor], bounds: list[int]) -> torch.Tensor:
        """Run the pass itself: `tensors` are 1 by tokens each, the result is tokens by hidden."""
        raise NotImplementedError


class PackedByAttention(PackedModel):
    """A packed model of the BERT and RoBERTa kinds, in a transformers whose attention can be replaced by name."""

    def __init__(self, model: Any, **keywords: Any) -> None:
        """Prepare the model; raise ValueError for a model that cannot be called in packed form."""
        if model.config.model_type not in _MODEL_TYPES or not hasattr(sys.modules[type(model).__module__], _INTERFACE):
            raise ValueError(f"{model.config.model_type} in this version of transformers has no packed way")
        _register()
        super().__init__(model, **keywords)

    def _last_layer(self, tensors: dict[str, torch.Tensor], bounds: list[int]) -> torch.Tensor:
        with self._attending_within(bounds):
            output: torch.Tensor = self._base(**tensors)[0][0]
        return output

    @contextmanager
    def _attending_within(self, bounds: list[int]) -> Iterator[None]:
        """Set the packed attention for one pass.

        The model reads the name of its attention at each pass, and builds no mask for one that it does not know.
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
    """Return sequences as a row.

    With an offset, positions are counted as RoBERTa does: a padding token in a text has none.
    """
    bounds = [0, *np.cumsum([len(one.ids) for one in encoded]).tolist()]
    positions = [_positions(np.asarray(one.ids), padding_token, position_offset) for one in encoded]
    segments = None
    if encoded[0].segments is not None:
        segments = np.asarray([segment for one in encoded for segment in one.segments or ()], dtype=np.int64)[None]
    ids = np.asarray([token for one in encoded for token in one.ids], dtype=np.int64)[None]
    return Row(ids, np.concatenate(positions)[None], segments, bounds)


def _positions(ids: Ids, padding_token: int, offset: int) -> Ids:
    if not offset:
        return np.arange(len(ids), dtype=np.int64)
    counted = ids != padding_token
    positions: Ids = np.cumsum(counted, dtype=np.int64) * counted + offset - 1
    return positions


def attention_within(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: Sequence[int], scale: float | None
) -> torch.Tensor:
    """Return attention within each sequence of a row; all tensors are 1 by heads by tokens by size."""
    parts = [
        scaled_dot_product_attention(query[:, :, a:b], key[:, :, a:b], value[:, :, a:b], scale=scale)
        for a, b in pairwise(bounds)
    ]
    return torch.cat(parts, dim=2)


def _on_gpu(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: Sequence[int], scale: float | None
) -> torch.Tensor:
    """Return the result of `attention_within` in one launch of torch's flash attention for varying lengths."""
    from torch.nn.attention.varlen import varlen_attn  # torch below 2.10 has none

    starts = torch.tensor(bounds, dtype=torch.int32, device=query.device)
    longest = max(b - a for a, b in pairwise(bounds))
    queries, keys, values = (tensor[0].transpose(0, 1).contiguous() for tensor in (query, key, value))
    output = varlen_attn(queries, keys, values, starts, starts, longest, longest, scale=scale)
    assert isinstance(output, torch.Tensor)  # noqa: S101 - a tuple only when more is asked for
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
    """Compute attention with the signature that transformers calls; the result is batch by tokens by heads by size."""
    kernel: Callable[..., torch.Tensor] = _on_gpu if query.is_cuda and query.dtype in _HALF else attention_within
    return kernel(query, key, value, _BOUNDS.get(), scaling).transpose(1, 2), None


def _register() -> None:
    from transformers import AttentionInterface  # where it is missing, no model has asked for it

    AttentionInterface.register(ATTENTION, _attention)


DISENTANGLED_FLASH = "disentangled-flash"
FLASH_DEBERTA = "flashdeberta"
DEBERTA = "deberta-v2"

_USUAL_ATTENTION = "DisentangledSelfAttention"


class PackedDeberta(PackedModel):
    """A DeBERTa-v2 or v3 whose packed passes use disentangled-flash; its padded passes are unchanged."""

    def __init__(self, model: Any, *, device: torch.device, **keywords: Any) -> None:  # transformers has no types
        """Prepare the model.

        Raises:
            ImportError: the library is not installed.
            ValueError: the library does not support the model or the GPU.
        """
        if model.config.model_type != DEBERTA:
            raise ValueError(f"{DISENTANGLED_FLASH} is for {DEBERTA}, and this is {model.config.model_type}")
        library = importlib.import_module("disentangled_flash")
        super().__init__(model, device=device, **keywords)
        # The library replaces the encoder of its argument, and its own encoder cannot run padded batches of any
        # length.
        base = _twin(self._base)
        # "auto" leaves the model unchanged if the GPU's kernels do not suit it; on a CPU it always would.
        library.optimize_deberta(base, backend="auto" if device.type == "cuda" else "torch")
        if not hasattr(base.encoder, "forward_packed"):
            raise ValueError(f"{DISENTANGLED_FLASH} has no kernel for this model on this GPU")
        self._describe: Callable[..., Any] = library.PackedSequenceInfo
        self._embeddings: Any = base.embeddings
        self._encoder: Any = base.encoder

    def _last_layer(self, tensors: dict[str, torch.Tensor], bounds: list[int]) -> torch.Tensor:
        lengths = tuple(end - start for start, end in pairwise(bounds))
        # With the bounds also known in Python, no layer waits for a copy of them from the GPU.
        info = self._describe(tuple(bounds), lengths, max(lengths))
        starts = self._to_device(torch.tensor(bounds, dtype=torch.int32), self._device)
        output = self._encoder.forward_packed(
            self._embeddings(**tensors)[0], starts, max(lengths), output_hidden_states=False, packed_info=info
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden


def use_flash_deberta(model: Any) -> Callable[[], None]:  # transformers has no types
    """Let each layer of a DeBERTa use flashdeberta's attention; return a function that restores the original.

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
        # The library's class is a subclass of transformers' with the same members and another computation.
        for layer in layers:
            layer.__class__ = kind

    become(library.FlashDisentangledSelfAttention)
    return lambda: become(usual)


def _twin(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of the modules with the same weights: replacing a part of one copy leaves the other unchanged."""
    twin = copy.copy(module)
    # A shallow copy shares the dictionary of its children with the original.
    twin._modules = {  # noqa: SLF001 - torch has no other way
        name: None if child is None else _twin(child)
        for name, child in module._modules.items()  # noqa: SLF001 - as above
    }
    return twin
