"""Probe models: one to three short calls of each, to find faults that neither a ping nor the list of models shows.

If the worker process of a model with DJL's own handler has ended, the model stays READY and pings answer 200; only a
call fails (DJL Serving 0.36.0, recording 24). On a multi-model endpoint a call loads the model, so models are probed
only if the user requests it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from cohost.endpoint.client import RESTARTING_HANDLERS, CohostClient
from cohost.endpoint.invocation_payloads import tiny_call
from cohost.errors import InvocationError, ModelNotReadyError, NoCapacityError, WorkerStoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import boto3

    from cohost.endpoint.stack_outputs import Deployment
    from cohost.endpoint.status import Status


CALLS_OF_A_STOPPED_MODEL: Final = 3
CALLS: Final = 2
"""Calls of a model that answers the first one. Of two workers, each receives every second call (recording 24), so a
single call may miss a stopped worker."""


class Verdict(StrEnum):
    """The outcome of a model's probe; the value is the text that `cohost status --probe` prints."""

    OK = "answers"
    STOPPED = "process stopped"
    PARTLY_STOPPED = "a process stopped"
    RESTARTING = "process restarts"
    NOT_READY = "not ready"
    REFUSES = "refuses the probe"
    FAILS = "fails"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The outcome of probing one model: `milliseconds` until its first answer, and `detail`, the text of an error.

    A model that rejects the probe's text may still be healthy, if its task is unknown or its handler needs other
    parameters.
    """

    model: str
    verdict: Verdict
    milliseconds: float
    detail: str | None = None

    @property
    def well(self) -> bool:
        """Return True if callers get answers: the model answered the probe or rejected the probe's text."""
        return self.verdict in {Verdict.OK, Verdict.REFUSES}


def probe_deployment(status: Status, deployment: Deployment, session: boto3.Session) -> tuple[Probe, ...]:
    """Probe each deployed or pushed model; return () without a call if a scale-to-zero endpoint has no running copy.

    At zero copies, a call would start a copy. On a multi-model endpoint, a call of a model that is not loaded loads it.
    """
    if status.component is not None and not status.component.current_copies:
        return ()
    client = CohostClient.from_deployment(deployment, session, retries=0)
    return tuple(probe_models(client, [*deployment.models, *status.not_in_outputs]))


def probe_models(
    client: CohostClient, models: Iterable[str], now: Callable[[], float] = time.perf_counter
) -> list[Probe]:
    """Call each model twice with a short text, and with labels if its task needs them.

    A model is called three times if its first call met a stopped process. If a model has three workers or more, the
    calls may miss a stopped worker. A model is called only once if DJL Serving restarts its worker by itself, because
    then the user has nothing to repair. `now` returns seconds of any clock.
    """
    return [_probe(client, model, now) for model in models]


def _probe(client: CohostClient, model: str, now: Callable[[], float]) -> Probe:
    first = _call(client, model, now)
    if first.verdict not in {Verdict.OK, Verdict.STOPPED} or _restarts(client, model):
        return first
    calls = CALLS if first.verdict is Verdict.OK else CALLS_OF_A_STOPPED_MODEL
    probes = [first, *(_call(client, model, now) for _ in range(calls - 1))]
    stopped = sum(probe.verdict is Verdict.STOPPED for probe in probes)
    if stopped in {0, calls}:
        return first
    return Probe(
        model=model,
        verdict=Verdict.PARTLY_STOPPED,
        milliseconds=first.milliseconds,
        detail=f"{stopped} of {calls} calls met a worker process that has ended",
    )


def _restarts(client: CohostClient, model: str) -> bool:
    return client.deployment.handlers.get(model) in RESTARTING_HANDLERS


def _call(client: CohostClient, model: str, now: Callable[[], float]) -> Probe:
    inputs, parameters = tiny_call(client.deployment.tasks.get(model))
    started = now()
    verdict, detail = Verdict.OK, None
    try:
        client.invoke(model, inputs, parameters, ready_timeout_s=0, restart_timeout_s=0)
    except InvocationError as error:
        verdict, detail = _verdict(client, model, error), error.problem
    return Probe(model=model, verdict=verdict, milliseconds=(now() - started) * 1000, detail=detail)


def _verdict(client: CohostClient, model: str, error: InvocationError) -> Verdict:
    if isinstance(error, WorkerStoppedError):
        return Verdict.RESTARTING if _restarts(client, model) else Verdict.STOPPED
    if isinstance(error, ModelNotReadyError | NoCapacityError):
        return Verdict.NOT_READY
    refuses = error.status is not None and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    # A 4xx with another code comes from SageMaker and not from the model, such as one for a missing right to call.
    return Verdict.REFUSES if refuses and error.aws_code in {None, "ModelError"} else Verdict.FAILS
