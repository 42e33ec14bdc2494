"""A model through torch.compile, which fuses what transformers computes step by step.

Each shape that the compiler has not seen costs it seconds to minutes, so batches are filled up to one of a few lengths,
and the number of sequences is left open. That makes two programs a length at most: one for a single sequence, which the
compiler treats apart, and one for more.
"""

from __future__ import annotations

import logging
import types
from typing import TYPE_CHECKING, Any

import torch

from .cohost_errors import one_line
from .cohost_length import lengths_up_to
from .cohost_memory import is_lost_device, is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    Pass = Callable[..., Any]

logger = logging.getLogger(__name__)


class CompiledModel:
    """A model of transformers, called like it, on batches whose length is one of `lengths`.

    Where the compiler fails, for want of a C++ compiler or for what a model does, the model runs as it is from then on.
    """

    def __init__(self, model: Any, limit: int, backend: str | Pass = "inductor") -> None:  # noqa: ANN401 - transformers has no types
        self._model = model
        self.lengths = lengths_up_to(limit)
        self._backend = backend
        self._passes: dict[int, Pass] = {}
        self.failure: str | None = None

    def length_of(self, length: int) -> int:
        """The length that a sequence of so many tokens is filled up to: the next of `lengths`."""
        return next(one for one in self.lengths if one >= length)

    def __call__(self, **tensors: torch.Tensor) -> Any:  # noqa: ANN401 - as above
        """One batch, tensors of sequences by tokens."""
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

    def _compiled(self, sequences: int, length: int, tensors: dict[str, torch.Tensor]) -> Any:  # noqa: ANN401 - as above
        if length not in self._passes:
            self._passes[length] = torch.compile(_own(self._model), backend=self._backend)
        if sequences > 1:
            for tensor in tensors.values():
                torch._dynamo.maybe_mark_dynamic(tensor, 0)  # noqa: SLF001 - torch documents it under this name
        return self._passes[length](**tensors)


def _own(model: Any) -> Pass:  # noqa: ANN401 - as above
    """A function of its own that calls the model: the compiler counts what it makes by a function's code."""

    def run(**tensors: torch.Tensor) -> Any:  # noqa: ANN401 - as above
        return model(**tensors)

    return types.FunctionType(run.__code__.replace(), run.__globals__, run.__name__, closure=run.__closure__)
