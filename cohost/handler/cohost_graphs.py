"""Recorded passes: a CUDA graph repeats all launches of a pass in one call of the driver.

A small pass takes as long as its launches, one after another from Python; recorded, it takes as long as the device
needs. A recording is of one shape and has memory of its own, so there are few: batches are filled up to one of these
shapes with sequences that nobody reads, which costs nothing as long as the device would wait for launches otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .cohost_texts import lengths_up_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cohost_stream import HostStream

    Shape = tuple[int, int]
    Recording = tuple[Callable[[], None], torch.Tensor, torch.Tensor]

_ROWS = (1, 4, 16, 64)


class RecordedModel:
    """A model recorded for all shapes (sequences, tokens per sequence) of at most `most_tokens` tokens.

    `run` is called with token ids, mask and segments, parts by sequences by tokens; `parts` is their number.
    """

    def __init__(
        self,
        run: Callable[[torch.Tensor], torch.Tensor],
        stream: HostStream,
        *,
        limit: int,
        most_tokens: int,
        parts: int,
    ) -> None:
        """Record the model; raise ValueError if no shape is that small."""
        shapes = [(rows, length) for length in lengths_up_to(limit) for rows in _ROWS if rows * length <= most_tokens]
        if not shapes:
            raise ValueError(f"a pass of {most_tokens} tokens fills the device")
        # The largest comes first, because the memory that its recording takes serves all others.
        shapes.sort(key=lambda shape: shape[0] * shape[1], reverse=True)
        self._recordings = {shape: _recorded(run, stream, parts, shape) for shape in shapes}

    def shape_of(self, sequences: int, length: int) -> Shape | None:
        """Return the smallest shape that holds so many sequences of a length, if there is one."""
        fitting = [shape for shape in self._recordings if shape[0] >= sequences and shape[1] >= length]
        return min(fitting, key=lambda shape: (shape[0] * shape[1], shape), default=None)

    def __call__(self, numbers: torch.Tensor) -> torch.Tensor:
        """Run one batch, whose shape is one of those recorded; the next of that shape overwrites the output."""
        replay, inputs, output = self._recordings[numbers.shape[1], numbers.shape[2]]
        inputs.copy_(numbers)
        replay()
        return output


def _recorded(run: Callable[[torch.Tensor], torch.Tensor], stream: HostStream, parts: int, shape: Shape) -> Recording:
    # Ones are a token, a mask that hides nothing, and a segment of models that read segments.
    inputs = torch.ones((parts, *shape), dtype=torch.int64, device=stream.device)
    replay, output = stream.record(lambda: run(inputs))
    return replay, inputs, output
