"""What happened: sums over a worker's life, and a log line about the batches since the last one."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, fields
from typing import Any

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Counters:
    """Sums; times are in seconds. `padded_tokens` are what the device worked on, `tokens` what callers sent of it.

    `queue_s` is summed over sequences, `forward_s` over passes.
    """

    requests: int = 0
    refused: int = 0
    cancelled: int = 0
    truncated: int = 0
    passes: int = 0
    sequences: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    memory_errors: int = 0
    queue_s: float = 0.0
    forward_s: float = 0.0

    def since(self, earlier: Counters) -> Counters:
        """The difference to an earlier state."""
        return Counters(**{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)})

    def copy(self) -> Counters:
        """The state as it is now."""
        return Counters(**asdict(self))

    def summary(self) -> dict[str, Any]:
        """The sums, and what they come to per pass and per sequence."""
        passes, sequences = max(1, self.passes), max(1, self.sequences)
        return asdict(self) | {
            "sequences_per_pass": round(self.sequences / passes, 3),
            "padding_share": round(1 - self.tokens / max(1, self.padded_tokens), 4),
            "mean_queue_ms": round(1000 * self.queue_s / sequences, 3),
            "mean_forward_ms": round(1000 * self.forward_s / passes, 3),
        }


class BatchLog:
    """Writes a line at most every `interval_s` seconds, and none when nothing ran."""

    def __init__(self, counters: Counters, interval_s: float, now: float) -> None:
        self._counters = counters
        self._interval_s = interval_s
        self._last = counters.copy()
        self._last_at = now

    def tick(self, now: float) -> bool:
        """To be called after each batch, with a clock in seconds; whether it wrote a line."""
        if now - self._last_at < self._interval_s:
            return False
        span = self._counters.since(self._last).summary()
        self._last, self._last_at = self._counters.copy(), now
        logger.info(
            "batches: %d passes, %.1f sequences a pass, %d tokens, %.0f%% padding, queue %.1f ms, forward %.1f ms; "
            "%d requests, %d refused, %d truncated, %d memory errors",
            span["passes"],
            span["sequences_per_pass"],
            span["tokens"],
            100 * span["padding_share"],
            span["mean_queue_ms"],
            span["mean_forward_ms"],
            span["requests"],
            span["refused"],
            span["truncated"],
            span["memory_errors"],
        )
        return True
