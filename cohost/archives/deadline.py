"""The time limit of one run of the Lambda function, and the part of it that is reserved for undoing and answering."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from .errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Callable


class LambdaContext(Protocol):
    """The part of Lambda's context object that is used here."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until Lambda ends the run."""


class Deadline:
    """The moments at which a run stops working, stops undoing, and sends its answer without further waiting.

    Each is given in seconds before the end of the run: work stops at `work`, undoing at `undo`, and at `answer` the
    answer is sent even if a call still hangs. CloudFormation waits an hour for an answer that never comes.
    """

    def __init__(self, context: LambdaContext, *, work: float = 10.0, undo: float = 6.0, answer: float = 5.0) -> None:
        self._remaining: Callable[[], int] = context.get_remaining_time_in_millis
        self._kept = work
        self._undo = undo
        self._answer = answer

    @property
    def seconds_to_answer(self) -> float:
        """Return the seconds from now until the answer must be sent; 0 if that is past."""
        return max(0.0, self._remaining() / 1000 - self._answer)

    def check(self) -> None:
        """Raise ArtifactError if it is time to stop."""
        if self._remaining() / 1000 < self._kept:
            raise ArtifactError(
                "publishing-too-slow",
                "time limit",
                "the function's run is nearly over and the work is not done",
                fix="run the deployment again, and raise the function's time-out if that repeats",
            )

    def allow_undo(self) -> None:
        """Move the time to stop from `work` to `undo`, so that an attempt can be undone."""
        if self._kept < math.inf:
            self._kept = self._undo

    def expire(self) -> None:
        """Make every later `check` raise, also while undoing."""
        self._kept = math.inf
