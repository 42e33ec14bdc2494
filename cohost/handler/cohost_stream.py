"""Copies to and from a model's device, and its memory; during a pass, no other module calls `torch.cuda`.

A GPU works in parallel with the threads of the process, so a pass is launched first and read later. `HostStream` has
the same methods as `CudaStream`, for a CPU, where a pass has ended when its launch returns.

With `RecordedModel`, a CUDA graph starts all kernels of a pass in one call of the driver. Without a recording, a small
pass takes as long as Python needs to launch its kernels one by one; a recorded pass takes only as long as the device
computes. A recording serves one shape and occupies its own memory, so only a few shapes are recorded. Batches are
filled up to a recorded shape with unused sequences, which costs no time as long as the device would otherwise wait for
launches.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import torch

from .cohost_memory import free_device_memory
from .cohost_texts import lengths_up_to

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from .cohost_tasks import Floats

    Shape = tuple[int, int]
    Recording = tuple[Callable[[], None], torch.Tensor, torch.Tensor]
    Alone = Callable[[], contextlib.AbstractContextManager[None]]

# A pass has hundreds of launches, and a thread may wait this long for the interpreter's lock at each launch.
_SWITCH_INTERVAL_S = 5e-4
_RUNS_BEFORE_RECORDING = 3


class HostStream:
    """The copies of passes on a CPU; `depth` passes may be launched before the result of the earliest is read.

    `alone` keeps the passes of other models away while a model is measured or recorded.
    """

    depth = 1

    def __init__(self, device: torch.device, alone: Alone = contextlib.nullcontext) -> None:
        self.device = device
        self.alone = alone

    @property
    def is_gpu(self) -> bool:
        """Return True if the device is a GPU, which works in parallel with the process's threads."""
        return self.device.type == "cuda"

    @property
    def name(self) -> str:
        """Return the name of the device's type, such as "cpu"."""
        return self.device.type

    def enter(self) -> None:
        """Prepare the calling thread to launch passes; on a CPU there is nothing to do."""

    def upload(self, numbers: npt.NDArray[Any]) -> torch.Tensor:
        """Return an array as a tensor on the device."""
        return torch.from_numpy(numbers)

    def download(self, tensor: torch.Tensor) -> Callable[[], Floats]:
        """Begin to copy an fp32 tensor to the host; the returned function waits for the copy and returns the array."""
        array: Floats = tensor.numpy()
        return lambda: array

    def record(self, run: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """Record the kernels that a function launches.

        Raises:
            NotImplementedError: always, since a CPU has no launches.
        """
        raise NotImplementedError

    def free_memory(self) -> None:
        """Release the memory that torch caches for later passes, so that a smaller pass can use it."""


class CudaStream(HostStream):
    """The copies of passes on a GPU: uploads and downloads run while the calling thread continues.

    The thread that reads a result sleeps until the result's download has ended.
    """

    depth = 2

    def __init__(self, device: torch.device, alone: Alone = contextlib.nullcontext) -> None:
        super().__init__(device, alone)
        self._pool: Any = None

    @property
    def name(self) -> str:
        """Return the name of the GPU."""
        return torch.cuda.get_device_name(self.device)

    def enter(self) -> None:
        """Make the device the calling thread's current GPU, and let threads get the interpreter's lock more often."""
        torch.cuda.set_device(self.device)
        sys.setswitchinterval(_SWITCH_INTERVAL_S)

    def upload(self, numbers: npt.NDArray[Any]) -> torch.Tensor:
        """Begin to copy an array to the GPU, from page-locked memory that torch keeps until the copy has ended."""
        return torch.from_numpy(numbers).pin_memory().to(self.device, non_blocking=True)

    def download(self, tensor: torch.Tensor) -> Callable[[], Floats]:
        """Begin to copy a tensor into page-locked memory, after the passes launched so far."""
        target = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        target.copy_(tensor, non_blocking=True)
        # Without `blocking`, the waiting thread would keep a core busy.
        copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call] # torch has no types for it
        copied.record(torch.cuda.current_stream(self.device))

        def read() -> Floats:
            copied.synchronize()
            array: Floats = target.numpy()
            return array

        return read

    def record(self, run: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """Record the kernels that a function launches; return a function that runs them again, and its output."""
        with self.alone():
            return self._record(run)

    def _record(self, run: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        # Libraries allocate memory and choose kernels in their first calls, which cannot be recorded.
        first = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call] # torch has no types for it
        first.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(first):
            for _ in range(_RUNS_BEFORE_RECORDING):
                run()
        torch.cuda.current_stream(self.device).wait_stream(first)
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        # One stream repeats the recordings, never two at once, so all recordings can share one pool of memory.
        with torch.cuda.graph(graph, pool=self._pool):
            output = run()
        return graph.replay, output

    def free_memory(self) -> None:
        """Release torch's cached GPU memory, unless the GPU is lost."""
        free_device_memory()


def stream_of(device: torch.device, alone: Alone = contextlib.nullcontext) -> HostStream:
    """Return the stream for a device: `CudaStream` for a GPU, `HostStream` for a CPU."""
    return CudaStream(device, alone) if device.type == "cuda" else HostStream(device, alone)


_ROWS = (1, 4, 16, 64)


class RecordedModel:
    """A model with a recording for each shape (sequences, tokens per sequence) of at most `most_tokens` tokens.

    `run` is called with a tensor of shape (parts, sequences, tokens): token ids, mask and, if `parts` is 3, segments.
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
        """Record the model for each shape; raise ValueError if every shape has more than `most_tokens` tokens."""
        shapes = [(rows, length) for length in lengths_up_to(limit) for rows in _ROWS if rows * length <= most_tokens]
        if not shapes:
            raise ValueError(f"a pass of {most_tokens} tokens fills the device")
        # The largest shape comes first, because the memory of its recording serves all others.
        shapes.sort(key=lambda shape: shape[0] * shape[1], reverse=True)
        self._recordings = {shape: _recorded(run, stream, parts, shape) for shape in shapes}

    def shape_of(self, sequences: int, length: int) -> Shape | None:
        """Return the smallest recorded shape that `sequences` sequences of `length` tokens fit into, or None."""
        fitting = [shape for shape in self._recordings if shape[0] >= sequences and shape[1] >= length]
        return min(fitting, key=lambda shape: (shape[0] * shape[1], shape), default=None)

    def __call__(self, numbers: torch.Tensor) -> torch.Tensor:
        """Run one batch of a recorded shape; the next batch of the same shape overwrites the output."""
        replay, inputs, output = self._recordings[numbers.shape[1], numbers.shape[2]]
        inputs.copy_(numbers)
        replay()
        return output


def _recorded(run: Callable[[torch.Tensor], torch.Tensor], stream: HostStream, parts: int, shape: Shape) -> Recording:
    # Ones are valid in all parts: as token ids, as a mask that hides nothing, and as segments.
    inputs = torch.ones((parts, *shape), dtype=torch.int64, device=stream.device)
    replay, output = stream.record(lambda: run(inputs))
    return replay, inputs, output
