"""One batch through the model: padding, the pass itself, and each sequence's part of the output.

With `CompiledModel`, torch.compile fuses the steps that transformers runs one by one. Each shape that is new to the
compiler takes it seconds to minutes, so batches are padded to one of a few lengths, and the number of sequences is left
dynamic. That makes at most two programs per length: one for a single sequence, which the compiler treats separately,
and one for more.
"""

from __future__ import annotations

import logging
import types
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .cohost_device import to_gpu
from .cohost_errors import one_line
from .cohost_memory import free_device_memory, is_lost_device, is_out_of_memory
from .cohost_tasks import Want
from .cohost_texts import lengths_up_to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from .cohost_packed import PackedModel
    from .cohost_tasks import Floats
    from .cohost_tokenizer import Encoded

    Pass = Callable[..., Any]
    Ids = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)


class CompiledModel:
    """A compiled model of transformers, called like the original, on batches whose length is one of `lengths`.

    If the compiler fails, for lack of a C++ compiler or because of the model's code, the model runs uncompiled from
    then on.
    """

    def __init__(self, model: Any, limit: int, backend: str | Pass = "inductor") -> None:  # transformers has no types
        self._model = model
        self.lengths = lengths_up_to(limit)
        self._backend = backend
        self._passes: dict[int, Pass] = {}
        self.failure: str | None = None

    def length_of(self, length: int) -> int:
        """Return the length that a sequence of this many tokens is padded to: the next of `lengths`."""
        return next(one for one in self.lengths if one >= length)

    def __call__(self, **tensors: torch.Tensor) -> Any:
        """Run one batch of tensors, sequences by tokens."""
        sequences, length = tensors["input_ids"].shape
        if self.failure is None and length in self.lengths:
            try:
                return self._compiled(sequences, length, tensors)
            except Exception as error:
                if is_out_of_memory(error) or is_lost_device(error):
                    raise
                self.failure = one_line(f"{type(error).__name__}: {error}")
                logger.warning("compile: not used from here on, %s", self.failure)
        return self._model(**tensors)

    def _compiled(self, sequences: int, length: int, tensors: dict[str, torch.Tensor]) -> Any:
        if length not in self._passes:
            self._passes[length] = torch.compile(_own(self._model), backend=self._backend)
        if sequences > 1:
            for tensor in tensors.values():
                torch._dynamo.maybe_mark_dynamic(tensor, 0)  # noqa: SLF001 - torch documents it under this name
        return self._passes[length](**tensors)


def _own(model: Any) -> Pass:
    """Return a separate function that calls the model: the compiler counts its programs by a function's code object."""

    def run(**tensors: torch.Tensor) -> Any:
        return model(**tensors)

    return types.FunctionType(run.__code__.replace(), run.__globals__, run.__name__, closure=run.__closure__)


# Tensor cores want dimensions that are multiples of 8; a CPU gains nothing from extra padding.
_MULTIPLE_ON_GPU = 8


@dataclass(slots=True)
class TokenSequence:
    """One sequence on its way: `length` is that of its ids, or more if the caller requested padding."""

    encoded: Encoded
    length: int
    want: Want
    index: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences padded to the same length: sequences by tokens each."""

    ids: Ids
    mask: Ids
    segments: Ids | None


class Forward:
    """The forward pass on `device`; `padding_ids` are the token and segment of padding, `limit` is the model's length.

    With `packed`, sequences whose caller requested no padding run without any. With `compiled`, batches are padded to
    one of its lengths and run through it.
    """

    def __init__(
        self,
        model: Any,  # transformers has no types
        *,
        device: torch.device,
        padding_ids: tuple[int, int],
        limit: int,
        packed: PackedModel | None = None,
        compiled: CompiledModel | None = None,
    ) -> None:
        self._model = model if compiled is None else compiled
        self._device = device
        self._padding_ids = padding_ids
        self._limit = limit
        self._packed = packed
        self._compiled = compiled
        self._multiple = _MULTIPLE_ON_GPU if device.type == "cuda" else 1
        self._to_device = to_gpu if device.type == "cuda" else torch.Tensor.to

    def packs(self, sequence: TokenSequence) -> bool:
        """Return True if a sequence runs packed, without padding."""
        return self._packed is not None and sequence.length == len(sequence.encoded.ids)

    def tokens_of(self, sequences: Sequence[TokenSequence]) -> int:
        """Return the number of tokens that the device processes for a batch, padding included."""
        if all(map(self.packs, sequences)):
            return sum(sequence.length for sequence in sequences)
        return len(sequences) * self._padded_length(sequences)

    def __call__(self, sequences: Sequence[TokenSequence]) -> list[Floats]:
        """Return each sequence's requested output, in order, in single precision: outputs, hidden, or tokens by hidden.

        Raises:
            Exception: whatever torch raises, running out of memory included.
        """
        with torch.inference_mode():
            if self._packed is not None and all(map(self.packs, sequences)):
                return _run_packed(self._packed, sequences)
            return self._run_padded(sequences)

    def length_of(self, sequence: TokenSequence) -> int:
        """Return the number of tokens that a sequence adds to a batch."""
        return sequence.length if self._compiled is None else self._compiled.length_of(sequence.length)

    def _padded_length(self, sequences: Sequence[TokenSequence]) -> int:
        longest = max(map(self.length_of, sequences))
        return max(longest, min(self._limit, -(-longest // self._multiple) * self._multiple))

    def _run_padded(self, sequences: Sequence[TokenSequence]) -> list[Floats]:
        encoded = [sequence.encoded for sequence in sequences]
        batch = fill_up(encoded, self._padded_length(sequences), self._padding_ids)
        arguments = {"input_ids": batch.ids, "attention_mask": batch.mask, "token_type_ids": batch.segments}
        tensors = {
            name: self._to_device(torch.from_numpy(array), self._device)
            for name, array in arguments.items()
            if array is not None
        }
        return _parts(self._model(**tensors)[0], tensors["attention_mask"], sequences)

    def free_memory(self) -> None:
        """Return the memory that torch keeps for later passes to the device, so that a smaller pass can use it."""
        if self._device.type == "cuda":
            free_device_memory()


def fill_up(encoded: Sequence[Encoded], length: int, padding_ids: tuple[int, int]) -> Batch:
    """Pad sequences on the right, as models with absolute positions need it. All have segments, or none."""
    shape = (len(encoded), length)
    ids = np.full(shape, padding_ids[0], dtype=np.int64)
    mask = np.zeros(shape, dtype=np.int64)
    segments = None if encoded[0].segments is None else np.full(shape, padding_ids[1], dtype=np.int64)
    for row, one in enumerate(encoded):
        size = len(one.ids)
        ids[row, :size] = one.ids
        mask[row, :size] = 1
        if segments is not None and one.segments is not None:
            segments[row, :size] = one.segments
    return Batch(ids, mask, segments)


def _parts(output: torch.Tensor, mask: torch.Tensor, sequences: Sequence[TokenSequence]) -> list[Floats]:
    """Return each sequence's part of the output.

    Vectors are pooled on the device: one vector per text is cheap to move, one per token is not.
    """
    ready: dict[Want, Floats] = {}
    parts: list[Floats] = []
    for row, sequence in enumerate(sequences):
        if sequence.want not in ready:
            ready[sequence.want] = _reduced(output, mask, sequence.want).float().cpu().numpy()
        part = ready[sequence.want][row]
        parts.append(part[: sequence.length] if sequence.want is Want.TOKENS else part)
    return parts


def _reduced(output: torch.Tensor, mask: torch.Tensor, want: Want) -> torch.Tensor:
    reduce: dict[Want, Callable[[], torch.Tensor]] = {
        Want.LOGITS: lambda: output,
        Want.TOKENS: lambda: output,
        Want.CLS: lambda: output[:, 0],
        Want.MEAN: lambda: _mean(output.float(), mask.unsqueeze(-1)),
    }
    return reduce[want]()


def _mean(vectors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (vectors * mask).sum(1) / mask.sum(1)


def _run_packed(model: PackedModel, sequences: Sequence[TokenSequence]) -> list[Floats]:
    encoded = [sequence.encoded for sequence in sequences]
    if sequences[0].want is Want.LOGITS:
        return list(model.logits(encoded).float().cpu().numpy())
    vectors, bounds = model.vectors(encoded)
    parts = [_of_sequence(vectors[a:b], one.want) for one, (a, b) in zip(sequences, pairwise(bounds), strict=True)]
    return [part.float().cpu().numpy() for part in parts]


def _of_sequence(vectors: torch.Tensor, want: Want) -> torch.Tensor:
    if want is Want.MEAN:
        return vectors.float().mean(0)
    return vectors[0] if want is Want.CLS else vectors
