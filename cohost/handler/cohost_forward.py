"""The forward pass of one batch: padding, the pass itself, and each sequence's part of the output.

With `CompiledModel`, torch.compile fuses the steps that transformers runs one by one. The compiler takes seconds to
minutes for each new shape of a batch, so batches are padded to one of a few lengths, and the number of sequences is
left dynamic. So the compiler makes at most two programs per length: one for batches of a single sequence, which the
compiler always specialises, and one for larger batches.
"""

from __future__ import annotations

import copy
import logging
import time
import types
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .cohost_errors import one_line
from .cohost_memory import is_lost_device, is_out_of_memory
from .cohost_packed import first_vectors, mean_vectors, takes_prepared_mask
from .cohost_tasks import Want
from .cohost_texts import lengths_up_to
from .cohost_tokenizer import Encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from .cohost_frames import TokenSequence
    from .cohost_packed import PackedModel
    from .cohost_stream import HostStream, RecordedModel
    from .cohost_tasks import Floats

    Pass = Callable[..., Any]
    Ids = npt.NDArray[np.int32]

logger = logging.getLogger(__name__)


class CompiledModel:
    """A model of transformers, compiled by torch.compile for the padded lengths in `lengths`; called like the original.

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
        """Return the padded length for a sequence of `length` tokens: the smallest of `lengths` that is not less."""
        return next(one for one in self.lengths if one >= length)

    def __call__(self, **tensors: torch.Tensor) -> Any:
        """Run one batch; each tensor has the shape (sequences, tokens)."""
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
    """Return a new function that calls the model, since the compiler limits the number of programs per code object."""

    def run(**tensors: torch.Tensor) -> Any:
        return model(**tensors)

    return types.FunctionType(run.__code__.replace(), run.__globals__, run.__name__, closure=run.__closure__)


# Tensor cores want dimensions that are multiples of 8; a CPU gains nothing from extra padding.
_MULTIPLE_ON_GPU = 8


def shortened(sample: TokenSequence, length: int) -> TokenSequence:
    """Return a sequence of the first `length` tokens of `sample`."""
    segments = None if sample.encoded.segments is None else sample.encoded.segments[:length]
    return replace(sample, encoded=Encoded(sample.encoded.ids[:length], segments, truncated=False), length=length)


@dataclass(frozen=True, slots=True)
class Pending:
    """A launched pass; `places` has each sequence's output as (start, shape) in the array that `copied` returns."""

    copied: Callable[[], Floats]
    places: list[tuple[int, tuple[int, ...]]]

    def read(self) -> list[Floats]:
        """Wait for the pass, and return each sequence's requested output, in the order of the sequences.

        Raises:
            Exception: any exception of torch for a pass that failed after its launch.
        """
        numbers = self.copied()
        return [numbers[start : start + prod(shape)].reshape(shape) for start, shape in self.places]


class Forward:
    """The forward pass of a model on a device.

    `padding_ids` are the token id and the segment of padding; `limit` is the model's limit in tokens. With `packed`,
    sequences run without padding, unless their caller requested padding. With `compiled`, batches are padded to one of
    the compiled lengths. With `recorded`, a batch that fits into a shape recorded as a CUDA graph is filled up to that
    shape.
    """

    def __init__(
        self,
        model: Any,  # transformers has no types
        *,
        stream: HostStream,
        padding_ids: tuple[int, int],
        limit: int,
        packed: PackedModel | None = None,
        compiled: CompiledModel | None = None,
        recorded: RecordedModel | None = None,
    ) -> None:
        self._model = model if compiled is None else compiled
        self._recorded = recorded
        self._stream = stream
        self._padding_ids = padding_ids
        self._limit = limit
        self._packed = packed
        self._compiled = compiled
        self._multiple = _MULTIPLE_ON_GPU if stream.is_gpu else 1
        self._type = model.dtype if stream.is_gpu and takes_prepared_mask(model) else None
        self.depth = stream.depth

    def with_recordings(self, recorded: RecordedModel) -> Forward:
        """Return a copy of this object that runs small batches by replaying recorded CUDA graphs."""
        other = copy.copy(self)
        other._recorded = recorded  # noqa: SLF001 - its own class
        return other

    @property
    def failure(self) -> str | None:
        """Return the reason why the compiled model is not used; None if it is used, or if the model is not compiled."""
        return None if self._compiled is None else self._compiled.failure

    def packs(self, sequence: TokenSequence) -> bool:
        """Return True if a sequence runs packed, without padding."""
        return self._packed is not None and sequence.length == len(sequence.encoded.ids)

    def tokens_of(self, sequences: Sequence[TokenSequence]) -> int:
        """Return the number of tokens that the device processes for a batch, padding included."""
        if shape := self._recorded_shape(sequences):
            return shape[0] * shape[1]
        if all(map(self.packs, sequences)):
            return sum(sequence.length for sequence in sequences)
        return len(sequences) * self._padded_length(sequences)

    def __call__(self, sequences: Sequence[TokenSequence]) -> list[Floats]:
        """Return each sequence's requested output, in order, in fp32: shape (labels), (hidden) or (tokens, hidden).

        Raises:
            Exception: any exception of torch, including one for memory that ran out.
        """
        with self._stream.alone():
            return self.launch(sequences).read()

    def timed(self, sequences: Sequence[TokenSequence]) -> float:
        """Run a batch while no other model uses the device, and return the seconds that it takes.

        Raises:
            Exception: any exception of torch, as in `__call__`.
        """
        with self._stream.alone():
            started = time.perf_counter()
            self.launch(sequences).read()
            return time.perf_counter() - started

    def launch(self, sequences: Sequence[TokenSequence]) -> Pending:
        """Start a pass; when this method returns, the pass still runs on a GPU, and has ended on a CPU.

        Raises:
            Exception: any exception of torch, as in `__call__`.
        """
        with torch.inference_mode():
            if shape := self._recorded_shape(sequences):
                return self._launch_padded(sequences, shape, self._recorded or self.run_padded)
            if self._packed is not None and all(map(self.packs, sequences)):
                lengths = [sequence.length for sequence in sequences]
                if self._packed.gains_at(lengths):
                    return self._launch_packed(self._packed, sequences)
            shape = (len(sequences), self._padded_length(sequences))
            return self._launch_padded(sequences, shape, self.run_padded)

    def run_padded(self, numbers: torch.Tensor) -> torch.Tensor:
        """Run a batch that `fill_up` made, on the device, and return the model's first output."""
        ids, mask, *segments = numbers
        shown = mask if self._type is None else _added(mask, self._type)
        names = ("input_ids", "attention_mask", "token_type_ids")
        output: torch.Tensor = self._model(**dict(zip(names, (ids, shown, *segments), strict=False)))[0]
        return output

    def length_of(self, sequence: TokenSequence) -> int:
        """Return the number of tokens that a sequence adds to a batch."""
        return sequence.length if self._compiled is None else self._compiled.length_of(sequence.length)

    def free_memory(self) -> None:
        """Release the memory that torch caches for later passes, so that a smaller pass can use it."""
        self._stream.free_memory()

    def _padded_length(self, sequences: Sequence[TokenSequence]) -> int:
        longest = max(map(self.length_of, sequences))
        return max(longest, min(self._limit, -(-longest // self._multiple) * self._multiple))

    def _recorded_shape(self, sequences: Sequence[TokenSequence]) -> tuple[int, int] | None:
        if self._recorded is None:
            return None
        return self._recorded.shape_of(len(sequences), max(sequence.length for sequence in sequences))

    def _launch_padded(
        self,
        sequences: Sequence[TokenSequence],
        shape: tuple[int, int],
        run: Callable[[torch.Tensor], torch.Tensor],
    ) -> Pending:
        """Launch a padded batch of shape (rows, tokens); a recorded shape may have more rows than the batch."""
        rows, length = shape
        encoded = [sequence.encoded for sequence in sequences]
        numbers = fill_up([*encoded, *[encoded[0]] * (rows - len(encoded))], length, self._padding_ids)
        uploaded = self._stream.upload(numbers).long()
        output = run(uploaded)
        reduced = {want: _reduced(output, uploaded[1], want) for want in _wants(sequences)}
        return self._pending(reduced, sequences, [row * length for row in range(len(sequences))])

    def _launch_packed(self, model: PackedModel, sequences: Sequence[TokenSequence]) -> Pending:
        vectors, bounds = model.vectors([sequence.encoded for sequence in sequences])
        reduce: dict[Want, Callable[..., torch.Tensor]] = {
            Want.LOGITS: model.logits,
            Want.TOKENS: lambda vectors, _: vectors,
            Want.CLS: first_vectors,
            Want.MEAN: mean_vectors,
        }
        reduced = {want: reduce[want](vectors, bounds) for want in _wants(sequences)}
        return self._pending(reduced, sequences, bounds.host)

    def _pending(
        self, reduced: dict[Want, torch.Tensor], sequences: Sequence[TokenSequence], starts: Sequence[int]
    ) -> Pending:
        """Start one copy of all outputs from the device to the host.

        For outputs with one row per token, `starts` has the index of each sequence's first row.
        """
        flat = [output.float().reshape(-1) for output in reduced.values()]
        before = dict(zip(reduced, accumulate(map(len, flat), initial=0), strict=False))
        places: list[tuple[int, tuple[int, ...]]] = []
        for row, (sequence, start) in enumerate(zip(sequences, starts, strict=False)):
            want, size = sequence.want, reduced[sequence.want].shape[-1]
            first = start if want is Want.TOKENS else row
            shape = (sequence.length, size) if want is Want.TOKENS else (size,)
            places.append((before[want] + first * size, shape))
        return Pending(self._stream.download(torch.cat(flat) if len(flat) > 1 else flat[0]), places)


def fill_up(encoded: Sequence[Encoded], length: int, padding_ids: tuple[int, int]) -> Ids:
    """Pad sequences on the right, since models with absolute positions need padding at the end.

    Either all sequences have segment ids, or none has. The shape of the result is (2 or 3, sequences, tokens): token
    ids, mask and, if there are any, segments.
    """
    fillings = (padding_ids[0], 0, padding_ids[1])[: 2 if encoded[0].segments is None else 3]
    numbers = np.empty((len(fillings), len(encoded), length), dtype=np.int32)
    for part, filling in zip(numbers, fillings, strict=True):
        part[:] = filling
    for row, one in enumerate(encoded):
        size = len(one.ids)
        numbers[0, row, :size] = one.ids
        numbers[1, row, :size] = 1
        if one.segments is not None:
            numbers[2, row, :size] = one.segments
    return numbers


def _added(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the mask in the additive form, numbers that attention adds to its scores: (sequences, 1, 1, tokens)."""
    hidden = (mask == 0)[:, None, None, :]
    return torch.zeros(hidden.shape, dtype=dtype, device=mask.device).masked_fill_(hidden, torch.finfo(dtype).min)


def _wants(sequences: Sequence[TokenSequence]) -> list[Want]:
    return list(dict.fromkeys(sequence.want for sequence in sequences))


def _reduced(output: torch.Tensor, mask: torch.Tensor, want: Want) -> torch.Tensor:
    """Return the part of a batch's output that `want` names: logits, or vectors of tokens or of texts.

    Vectors are pooled on the device, because one vector per text takes less time to copy than one vector per token.
    """
    if want is Want.MEAN:
        weights = mask.unsqueeze(-1)
        return (output.float() * weights).sum(1) / weights.sum(1)
    return output[:, 0] if want is Want.CLS else output
