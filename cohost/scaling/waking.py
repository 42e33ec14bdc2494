"""Waiting for a scale-to-zero endpoint to wake up, without waking it more than once.

A call at zero is refused and counted; the count raises an alarm, and an alarm that stays on asks for one more copy each
minute (AWS guide: CloudWatch alarm actions). So after the first refused call nothing is sent while a copy is on its
way: SageMaker is asked how many copies run.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import ClientError

from cohost.errors import NoCapacityError
from cohost.scaling.copies import read_copies
from cohost.scaling.waiting import Backoff, Clock, Gate

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_sagemaker import SageMakerClient

    from cohost.scaling.copies import Copies
    from cohost.scaling.waiting import Waiting

Answer = TypeVar("Answer")

WAKE_TIMEOUT_S = 900.0
"""Others measured 9 min 24 s from the first refused call to the first answer on ml.g5.xlarge."""

PAUSES = Backoff(first_s=2.0, longest_s=10.0)

CALL_AGAIN_S = 180.0
"""While no copy is even wanted, the alarm has not heard of the call: after this it is told again."""

BLIND_CALL_AGAIN_S = 60.0
"""The same where SageMaker may not be asked about the component."""

_NO_CAPACITY = re.compile(r"\bno capacity to process this request\b", re.IGNORECASE)


def is_no_capacity(error_type: str, message: str) -> bool:
    """Whether an error of InvokeEndpoint says that the component has no copy that runs.

    It is a ValidationError with status 400, as many other faults are; only its text tells (AWS guide: scale an endpoint
    to zero instances).
    """
    return error_type in {"ValidationError", "ValidationException"} and bool(_NO_CAPACITY.search(message))


class Waker:
    """Lets the calls of one component wait until it is awake. Safe for threads: one asks, the others wait with it.

    `sagemaker` None, or one that may not look at the component: nothing but calls shows that it is up.
    """

    def __init__(self, component_name: str, sagemaker: SageMakerClient | None, clock: Clock) -> None:
        self._name = component_name
        self._sagemaker = sagemaker
        self._clock = clock
        self._lock = threading.Lock()
        self._called_at = clock.now()
        self._gate = Gate(NoCapacityError, backoff=PAUSES, clock=clock, look=self._look)

    def run(self, send: Callable[[], Answer], *, limit_s: float, notice: Callable[[Waiting], None]) -> Answer:
        """Make a call; while there is no capacity for it, wait and make it again.

        Raises:
            LimitPassedError: there was none until the limit.
            NoCapacityError: the component has failed, so that waiting does not help.
        """
        return self._gate.run(lambda: self._send(send), limit_s=limit_s, notice=notice)

    def answered(self) -> None:
        """A call that did not wait was answered: let those through that do."""
        self._gate.open()

    def _send(self, send: Callable[[], Answer]) -> Answer:
        with self._lock:
            self._called_at = self._clock.now()
        return send()

    def _look(self) -> bool:
        """Whether another call makes sense by now."""
        since_s = self._clock.now() - self._called_at
        copies = self._copies()
        if copies is None:
            return since_s >= BLIND_CALL_AGAIN_S
        if copies.status == "Failed" and not copies.current:
            reason = copies.failure_reason or "SageMaker gives no reason"
            msg = (
                f"inference component {self._name!r} has failed: {reason}; "
                "fix: see its log group, and run `cohost wake` to ask for a copy again, or `cdk deploy`"
            )
            raise NoCapacityError(msg)
        return copies.current > 0 or (copies.desired == 0 and since_s >= CALL_AGAIN_S)

    def _copies(self) -> Copies | None:
        if self._sagemaker is None:
            return None
        try:
            return read_copies(self._sagemaker, self._name)
        except ClientError:
            # A caller that may invoke need not be allowed to look.
            return None
