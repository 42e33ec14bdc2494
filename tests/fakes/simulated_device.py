"""A GPU described by four numbers: the cost of a launch, the speed, the memory, and the failures.

A pass occupies the launching thread for `launch_s`, whatever its size, as a few hundred launches of kernels do. The
device has one stream: it begins a pass when the first kernel is launched and the pass before it has ended, and ends it
after `tokens / tokens_per_s`, and not before its last kernel is launched. So a small pass takes `launch_s`, and the
device is idle for most of it; the true cost of a pass in tokens is `launch_s * tokens_per_s`.

`SimulatedForward` stands where the handler has its `Forward`. With `Clock` no time passes, and every figure is exact;
with `time` itself as the clock, threads wait as long as they would.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB"


@dataclass(frozen=True)
class Card:
    """A model on a card; `memory_tokens` is the largest pass that fits."""

    launch_s: float
    tokens_per_s: float
    memory_tokens: int = 1_000_000

    @property
    def pass_cost(self) -> float:
        """Return the true cost of a pass in tokens."""
        return self.launch_s * self.tokens_per_s


# Half precision on an A10G, calculated, not measured: 70 TFLOP/s and some 10 microseconds per kernel launched.
CARDS = {
    "MiniLM-L6": Card(launch_s=0.0028, tokens_per_s=1_150_000),
    "mDeBERTa": Card(launch_s=0.013, tokens_per_s=122_000),
    "XLM-R-large": Card(launch_s=0.0095, tokens_per_s=65_000),
}


class Time(Protocol):
    """The part of the module `time` that is used."""

    def perf_counter(self) -> float: ...  # noqa: D102
    def sleep(self, seconds: float, /) -> None: ...  # noqa: D102


class Clock:
    """A clock that advances only when code sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        """Return the time in seconds."""
        return self.now

    monotonic = perf_counter

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += max(0.0, seconds)


class SimulatedForward:
    """A model on a simulated device without padding; its answer to a sequence is the first token.

    `fails` returns the error of a pass, by its sequences, or None.
    """

    depth = 2

    def __init__(
        self, card: Card, clock: Time, fails: Callable[[Sequence[Any]], Exception | None] = lambda _: None
    ) -> None:
        self.card = card
        self.busy_s = 0.0
        self.waits = 0
        self.passes: list[int] = []
        self.freed = 0
        self._clock = clock
        self._fails = fails
        self._free_at = 0.0
        self._lock = threading.Lock()

    def packs(self, _sequence: Any) -> bool:
        """Return True, because this device packs texts."""
        return True

    def length_of(self, sequence: Any) -> int:
        """Return the length that a sequence adds to a pass."""
        return int(sequence.length)

    def tokens_of(self, sequences: Sequence[Any]) -> int:
        """Return the tokens of a pass."""
        return sum(int(sequence.length) for sequence in sequences)

    def free_memory(self) -> None:
        """Count."""
        self.freed += 1

    def launch(self, sequences: Sequence[Any]) -> Any:
        """Launch a pass.

        Raises:
            Exception: it does not fit, or fails.
        """
        tokens = self.tokens_of(sequences)
        if tokens > self.card.memory_tokens:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        error = self._fails(sequences)
        if error is not None:
            raise error
        begun = self._clock.perf_counter()
        self._clock.sleep(self.card.launch_s)
        work = tokens / self.card.tokens_per_s
        with self._lock:
            self._free_at = max(max(begun, self._free_at) + work, self._clock.perf_counter())
            self.busy_s += work
            self.passes.append(tokens)
            ends = self._free_at

        def read() -> list[Any]:
            self.waits += 1
            self._clock.sleep(ends - self._clock.perf_counter() if ends > self._clock.perf_counter() else 0.0)
            return [np.asarray(one.encoded.ids[:1], dtype=np.float32) for one in sequences]

        return SimpleNamespace(read=read)

    def timed(self, sequences: Sequence[Any]) -> float:
        """Run a pass, and return the seconds that it took."""
        begun = self._clock.perf_counter()
        self(sequences)
        return self._clock.perf_counter() - begun

    def __call__(self, sequences: Sequence[Any]) -> list[Any]:
        """Run a pass and wait for its end."""
        outputs: list[Any] = self.launch(sequences).read()
        return outputs
