"""The steps of a run: what is measured, one step after another, from the options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from load_tests.errors import LoadError

if TYPE_CHECKING:
    import argparse

SWEEP_SECONDS = 20.0
SETTLE_SECONDS = 2.0
SPAWN_RATE = 100
"""Users started in a second; Locust warns of more."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One measured step: texts a call, callers (in an open load: most calls under way), calls a second (None: closed).

    `seconds` is None for a step that goes on until somebody stops it; `settle` are the seconds of calls dropped before.
    """

    batch: int
    concurrency: int
    rate: float | None
    seconds: float | None
    settle: float

    @property
    def name(self) -> str:
        """The step in a few characters."""
        load = f"c{self.concurrency}" if self.rate is None else f"{self.rate:g}/s"
        return f"b{self.batch} {load}"


def check(options: argparse.Namespace) -> None:
    """Check the options that exclude each other.

    Raises:
        LoadError: two of them cannot go together.
    """
    if options.rate is not None and (options.sweep_batch or options.sweep_concurrency):
        msg = "--rate and a sweep; allowed: one of them; fix: run once for each rate, and compare with `cohost report`"
        raise LoadError(msg)
    if options.models and options.target_model:
        raise LoadError("--models and --target-model; allowed: one of them; fix: leave one out")
    if options.inference_component and not options.endpoint:
        raise LoadError(
            "--inference-component without --endpoint; allowed: both; fix: leave it out, a stack's outputs name the "
            "component, and a container has none"
        )
    if options.max_length is not None and not options.pad_to_max:
        raise LoadError("--max-length without --pad-to-max; allowed: both; fix: add --pad-to-max")
    if options.texts and options.pad_to_max:
        msg = (
            "--texts and --pad-to-max; allowed: one of them; fix: leave --pad-to-max out to send your texts as they are"
        )
        raise LoadError(msg)


def default_users(rate: float | None) -> int:
    """Users when -u is left out: one, or in an open load enough for calls of up to four seconds."""
    return 1 if rate is None else max(10, min(1000, round(4 * rate)))


def steps(options: argparse.Namespace, users: int) -> tuple[Step, ...]:
    """The steps in order: the batch sweep at `users` callers, then the concurrency sweep at --batch-size."""
    pairs = [(batch, users) for batch in options.sweep_batch or ()]
    pairs += [(options.batch_size, callers) for callers in options.sweep_concurrency or ()]
    seconds = options.measure or (SWEEP_SECONDS if pairs else None)
    found = dict.fromkeys(pairs or [(options.batch_size, users)])
    return tuple(
        Step(
            batch=batch,
            concurrency=concurrency,
            rate=options.rate,
            seconds=seconds,
            settle=options.warmup if index == 0 else min(options.warmup, SETTLE_SECONDS),
        )
        for index, (batch, concurrency) in enumerate(found)
    )


def batches(options: argparse.Namespace) -> tuple[int, ...]:
    """Every number of texts a call that the steps need."""
    sizes = list(options.sweep_batch or ())
    if options.sweep_concurrency or not sizes:
        sizes.append(options.batch_size)
    return tuple(dict.fromkeys(sizes))
