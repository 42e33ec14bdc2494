"""Measure the batching handler's engine on simulated GPUs: the GPU's idle time, and the accuracy of a pass's cost.

The GPU is `tests/fakes/simulated_device.py`; threads wait as long as they would for a real GPU. A real GPU's memory and
kernels are not simulated, so the results show the time that the engine loses, not the rate that a real GPU reaches.
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
from cohost.handler.cohost_engine import Engine, EngineSettings
from cohost.handler.cohost_errors import BusyError, HandlerError
from cohost.handler.cohost_frames import TokenSequence
from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_scheduler import Lanes, Scheduler
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
# Errors with which CUDA and its libraries report that memory is short: a smaller pass helps, a new process does not.
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
    """A simulated GPU's work: texts per second, the share of time in which the GPU was idle, and the passes."""

    rate: float
    idle: float
    passes: int
    waits: int
    tokens_per_pass: float


def sequence() -> TokenSequence:
    """Return the sequence that stands for a client's text."""
    return TokenSequence(Encoded(np.ones(TOKENS, np.int32), None, truncated=False), TOKENS, Want.LOGITS)


def warmed(card: Card) -> Measured:
    """Run the warm-up on a simulated GPU, and return its results."""
    sample = Encoded(np.ones(LIMIT, np.int32), None, truncated=False)
    loaded: Any = SimpleNamespace(
        forward=SimulatedForward(card, time), device=torch.device("cuda"), limit=LIMIT, samples=[sample]
    )
    return warm_up(loaded, read_options({"model_dir": "simulated"}), AUTO)


def engine_of(forward: SimulatedForward, measured: Measured, lost: list[str]) -> Engine:
    """Return an engine with settings like those of a real service."""
    settings = EngineSettings(
        max_batch_tokens=measured.max_batch_tokens,
        max_batch_sequences=64,
        floor_tokens=LIMIT,
        pass_cost=measured.pass_cost,
        max_queued_sequences=AUTO,
        max_queue_time_s=60.0,
    )
    given: Any = forward
    scheduler = Scheduler(Lanes(depth=forward.depth))
    return Engine(given, settings, Counters(), lambda: lost.append("lost"), scheduler)


async def crowd(card: Card, measured: Measured, seconds: float) -> Figures:
    """Let clients send one text after the other for `seconds`, and return the GPU's measurements."""
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
    """Return True if an engine ends its process because the GPU once reports `text`, an error about lack of memory."""
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
    """Print a goal's line, with "met" or "MISSED", and return `met`."""
    print(f"{'met   ' if met else 'MISSED'}  {text}")
    return met


def run(seconds: float) -> int:
    """Measure all simulated GPUs, print the measurements and the goals' verdicts, and return the exit code."""
    # The engine would log each error that a GPU reports on purpose.
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
