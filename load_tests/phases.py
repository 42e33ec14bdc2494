"""The phases of a run: the plan of its steps, the cold calls, and the wake-up of a target at zero copies."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import boto3
import gevent

from cohost.endpoint.client import READY_TIMEOUT_S
from cohost.endpoint.copies import Waker
from cohost.errors import NoCapacityError
from cohost.report.run import ColdCall
from cohost.report.samples import Outcome
from cohost.waiting import Clock, LimitPassedError
from load_tests import LoadError
from load_tests.stage import now
from load_tests.targets import instances_of

if TYPE_CHECKING:
    import argparse

    from cohost.waiting import Waiting
    from load_tests.session import Session


SWEEP_SECONDS = 20.0
SETTLE_SECONDS = 2.0
SPAWN_RATE = 100
"""Users started per second; Locust warns of a higher rate."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One measured step of a run.

    `batch` is the number of texts per call. `concurrency` is the number of callers; in an open load, it limits the
    number of calls at the same time. `rate` is the planned calls per second; None in a closed load. `seconds` is the
    step's duration; None if the step runs until the user stops it. `settle` is the duration of the warm-up before the
    step, in seconds.
    """

    batch: int
    concurrency: int
    rate: float | None
    seconds: float | None
    settle: float

    @property
    def name(self) -> str:
        """Return the step's name from its batch size and its load, such as "b8 c4" or "b1 40/s"."""
        load = f"c{self.concurrency}" if self.rate is None else f"{self.rate:g}/s"
        return f"b{self.batch} {load}"


def check(options: argparse.Namespace) -> None:
    """Check that no options exclude each other, and that none lacks an option that it needs.

    Raises:
        LoadError: two options exclude each other, or an option is missing that another needs.
    """
    if options.rate is not None and (options.sweep_batch or options.sweep_concurrency):
        raise LoadError(
            "load-options-conflict",
            "--rate",
            "given with a sweep",
            fix="run once for each rate, and compare with `cohost report`",
        )
    if options.models and options.target_model:
        raise LoadError("load-options-conflict", "--models", "given with --target-model", fix="leave one out")
    if options.inference_component and not options.endpoint:
        raise LoadError(
            "load-options-conflict",
            "--inference-component",
            "given without --endpoint",
            fix="leave it out: a stack's outputs name the component, and a container has none",
        )
    if options.max_length is not None and not options.pad_to_max:
        raise LoadError("load-options-conflict", "--max-length", "given without --pad-to-max", fix="add --pad-to-max")
    if options.texts and options.pad_to_max:
        raise LoadError(
            "load-options-conflict",
            "--texts",
            "given with --pad-to-max",
            fix="leave --pad-to-max out to send your texts unchanged",
        )


def default_users(rate: float | None) -> int:
    """Return the number of users if -u is left out: 1; in an open load, enough for calls of up to four seconds."""
    return 1 if rate is None else max(10, min(1000, round(4 * rate)))


def steps(options: argparse.Namespace, users: int) -> tuple[Step, ...]:
    """Return a run's steps: first the batch sweep with `users` callers, then the concurrency sweep at --batch-size."""
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
    """Return every number of texts per call that a run's steps need."""
    sizes = list(options.sweep_batch or ())
    if options.sweep_concurrency or not sizes:
        sizes.append(options.batch_size)
    return tuple(dict.fromkeys(sizes))


_AGAIN = {Outcome.NOT_READY, Outcome.THROTTLED}
"""Outcomes of a first call after which it is repeated, since they pass by themselves.

The outcome NO_CAPACITY is not repeated: calls to an endpoint at zero copies start copies, which cost money. --wake
waits for them.
"""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0


def first_calls(session: Session, phase: int, batch: int) -> tuple[ColdCall, ...]:
    """Call one model after the other until it answers, then once more: the difference is the time for loading."""
    return tuple(_first_call(session, phase, index, batch) for index in range(len(session.resolved.models)))


def _first_call(session: Session, phase: int, model: int, batch: int) -> ColdCall:
    payload = session.books[model].payloads[batch][0]
    name = session.resolved.models[model].name
    started, refused, pause_s = now(), 0, FIRST_PAUSE_S
    while True:
        exchange, verdict = session.call(phase, model, payload)
        if verdict.outcome not in _AGAIN or now() + pause_s > started + READY_TIMEOUT_S:
            break
        refused += 1
        gevent.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    if verdict.outcome is not Outcome.OK:
        failure = f"{verdict.failure}: {verdict.detail}" if verdict.detail else verdict.failure
        return ColdCall(model=name, first_s=None, second_s=None, refused=refused, failure=failure)
    first_s = exchange.done - started
    exchange, verdict = session.call(phase, model, payload)
    second_s = exchange.done - exchange.sent if verdict.outcome is Outcome.OK else None
    return ColdCall(model=name, first_s=first_s, second_s=second_s, refused=refused)


_logger = logging.getLogger("load_tests")


def wake_up(session: Session, phase: int, batch: int, limit_s: float) -> bool:
    """Call the first model until a copy of the inference component answers; return False after `limit_s` seconds.

    A target without an inference component never has zero copies, so it is not called. After the wake-up, the session's
    target gets the endpoint's new number of instances.
    """
    target = session.resolved.target
    component = target.inference_component_name
    if component is None:
        return True
    payload = session.books[0].payloads[batch][0]
    sagemaker = boto3.client("sagemaker", region_name=target.region)

    def call() -> None:
        _, verdict = session.call(phase, 0, payload)
        if verdict.outcome is Outcome.NO_CAPACITY:
            raise NoCapacityError("no-capacity", component, verdict.detail)

    try:
        Waker(component, sagemaker, Clock(now=now, sleep=gevent.sleep)).run(call, limit_s=limit_s, notice=_log_progress)
    except (LimitPassedError, NoCapacityError) as error:
        _logger.error("the target did not wake up: %s", error)  # noqa: TRY400 - the message is complete without a traceback
        return False
    count = instances_of(sagemaker, target.endpoint_name or "")
    session.resolved = replace(session.resolved, target=target.model_copy(update={"instance_count": count}))
    return True


def _log_progress(waiting: Waiting) -> None:
    _logger.info("waking up: %.0f s of at most %.0f s", waiting.waited_s, waiting.limit_s)
