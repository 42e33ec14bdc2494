"""Waits for an inference component that is at zero, before anything is measured."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import boto3
import gevent

from cohost.errors import NoCapacityError
from cohost.report.samples import Outcome
from cohost.scaling.waiting import Clock, LimitPassedError
from cohost.scaling.waking import Waker
from load_tests.clock import now
from load_tests.targets import instances_of

if TYPE_CHECKING:
    from cohost.scaling.waiting import Waiting
    from load_tests.session import Session

_logger = logging.getLogger("load_tests")


def wake_up(session: Session, phase: int, batch: int, limit_s: float) -> bool:
    """Call the first model until there is a copy to answer; False when there was none until the limit, in seconds.

    A target without inference component is never at zero, and not called. Instances are counted anew afterwards.
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
            raise NoCapacityError(verdict.detail)

    try:
        Waker(component, sagemaker, Clock(now=now, sleep=gevent.sleep)).run(call, limit_s=limit_s, notice=_tell)
    except (LimitPassedError, NoCapacityError) as error:
        _logger.error("%s did not wake up: %s", component, error)  # noqa: TRY400 - its message is all there is to know
        return False
    count = instances_of(sagemaker, target.endpoint_name or "")
    session.resolved = replace(session.resolved, target=target.model_copy(update={"instance_count": count}))
    return True


def _tell(waiting: Waiting) -> None:
    _logger.info("waking up: %.0f s of at most %.0f s", waiting.waited_s, waiting.limit_s)
