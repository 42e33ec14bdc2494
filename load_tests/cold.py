"""The first call of each model, timed by itself: a multi-model endpoint loads a model at its first call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gevent

from cohost.client import READY_TIMEOUT_S
from cohost.report.run import ColdCall
from cohost.report.samples import Outcome
from load_tests.clock import now

if TYPE_CHECKING:
    from load_tests.session import Session

_AGAIN = {Outcome.NOT_READY, Outcome.THROTTLED}
"""What passes by itself. An endpoint at zero is waited for with --wake: calls that are repeated there cost copies."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0


def first_calls(session: Session, phase: int, batch: int) -> tuple[ColdCall, ...]:
    """Call each model, one after the other, until it answers, and once more to see what of that was loading."""
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
