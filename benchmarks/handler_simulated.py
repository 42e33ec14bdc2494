"""The engine of the batching handler on a simulated GPU: how idle it leaves the card, and what it takes a pass to cost.

The card is `tests/fakes/simulated_device.py`; threads wait as long as they would for a real one. What a real one does
with its memory and its kernels is not simulated, so this shows what the engine loses, not what the card reaches.
`python benchmarks/handler.py --device simulated`
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cohost.handler.cohost_batches import Counters
from cohost.handler.cohost_engine import Engine, EngineSettings, ModelThread
from cohost.handler.cohost_errors import BusyError, HandlerError
from cohost.handler.cohost_forward import TokenSequence
from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_tasks import Want
from cohost.handler.cohost_tokenizer import Encoded
from cohost.handler.cohost_warm_up import Measured, warm_up

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from fakes.simulated_device import CARDS, OUT_OF_MEMORY, Card, SimulatedForward

if TYPE_CHECKING:
    from collections.abc import Sequence

CLIENTS = 64
TOKENS = 128
LIMIT = 512
AUTO = 16_384
MOST_IDLE = 0.10
MOST_TIMES_THE_TRUTH = 2
IDLE_GOAL = "XLM-R-large"
# Errors with which CUDA and its libraries report that memory is short: a smaller pass helps, and no new process.
SHORT_OF_MEMORY = (
    OUT_OF_MEMORY,
    "CUDA error: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "NVML_SUCCESS == r INTERNAL ASSERT FAILED at CUDACachingAllocator.cpp",
)


@dataclass(frozen=True)
class Figures:
    """What a model's card did: items a second, the share of time in which it was idle, and its passes."""

    rate: float
    idle: float
    passes: int
    waits: int
    tokens_per_pass: float


def sequence() -> TokenSequence:
    """Return a text of a client."""
    return TokenSequence(Encoded(np.ones(TOKENS, np.int32), None, truncated=False), TOKENS, Want.LOGITS)


def warmed(card: Card) -> Measured:
    """Return what the passes before READY measure on a card."""
    sample = Encoded(np.ones(LIMIT, np.int32), None, truncated=False)
    loaded: Any = SimpleNamespace(
        forward=SimulatedForward(card, time), device=torch.device("cuda"), limit=LIMIT, samples=[sample]
    )
    return warm_up(loaded, read_options({"model_dir": "simulated"}), AUTO)


def engine_of(forward: SimulatedForward, measured: Measured, lost: list[str]) -> Engine:
    """Return the engine as the service makes it."""
    settings = EngineSettings(
        max_batch_tokens=measured.max_batch_tokens,
        max_batch_sequences=64,
        floor_tokens=LIMIT,
        pass_cost=measured.pass_cost,
        max_queued_sequences=AUTO,
        max_queue_time_s=60.0,
    )
    given: Any = forward
    return Engine(given, settings, Counters(), lambda: lost.append("lost"), ModelThread())


async def crowd(card: Card, measured: Measured, seconds: float) -> Figures:
    """Let clients send one text after the other."""
    forward = SimulatedForward(card, time)
    engine = engine_of(forward, measured, [])
    started = time.perf_counter()

    async def client() -> int:
        answered = 0
        while time.perf_counter() < started + seconds:
            await engine.run([sequence()])
            answered += 1
        return answered

    answered = sum(await asyncio.gather(*(client() for _ in range(CLIENTS))))
    took = time.perf_counter() - started
    engine.stop()
    passes = len(forward.passes)
    return Figures(answered / took, 1 - forward.busy_s / took, passes, forward.waits, sum(forward.passes) / passes)


async def lost_to(text: str, measured: Measured) -> bool:
    """Return True if a worker ends because its card reports once, in these words, that memory is short."""
    left = [RuntimeError(text)]

    def fails(_sequences: Sequence[Any]) -> Exception | None:
        return left.pop() if left else None

    lost: list[str] = []
    engine = engine_of(SimulatedForward(CARDS["MiniLM-L6"], time, fails), measured, lost)
    results = await asyncio.gather(*(engine.run([sequence()]) for _ in range(2)), return_exceptions=True)
    engine.stop()
    unexpected = [one for one in results if isinstance(one, Exception) and not isinstance(one, HandlerError)]
    if unexpected:
        raise unexpected[0]
    return any(isinstance(one, BusyError) for one in results)


def verdict(text: str, *, met: bool) -> bool:
    """Print a goal's verdict and return it."""
    print(f"{'met   ' if met else 'MISSED'}  {text}")
    return met


def run(seconds: float) -> int:
    """Measure all cards, print the figures and the goals; return the exit code."""
    # Each error that a card reports on purpose is logged.
    logging.disable(logging.CRITICAL)
    met = True
    for name, card in CARDS.items():
        measured = warmed(card)
        figures = asyncio.run(crowd(card, measured, seconds))
        print(
            f"{name:<12} {figures.rate:7.0f} items/s  card idle {figures.idle:4.0%}  "
            f"{figures.tokens_per_pass:6.0f} tokens a pass, {measured.max_batch_tokens} at most  "
            f"{figures.waits / figures.passes:.1f} waits a pass  "
            f"pass cost {measured.pass_cost} tokens, in truth {card.pass_cost:.0f}",
            flush=True,
        )
        times = measured.pass_cost / card.pass_cost
        within = 1 / MOST_TIMES_THE_TRUTH <= times <= MOST_TIMES_THE_TRUTH
        met &= verdict(f"{name}: pass cost {times:.2f} times the truth, at most {MOST_TIMES_THE_TRUTH}", met=within)
        if name == IDLE_GOAL:
            idle_met = figures.idle < MOST_IDLE
            met &= verdict(f"{name}: {CLIENTS} clients leave the card idle for under {MOST_IDLE:.0%}", met=idle_met)
    measured = warmed(CARDS["MiniLM-L6"])
    for text in SHORT_OF_MEMORY:
        met &= verdict(f"a worker survives: {text[:60]}", met=not asyncio.run(lost_to(text, measured)))
    return 0 if met else 1
