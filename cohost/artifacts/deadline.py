"""The time that one run of the Lambda function may take, and what is kept back of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from .errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Callable


class LambdaContext(Protocol):
    """What is used of the context object that Lambda hands to a handler."""

    def get_remaining_time_in_millis(self) -> int:
        """The milliseconds until Lambda ends the run."""


class Deadline:
    """Says when it is time to stop working, time to stop undoing, and time to answer without waiting any more.

    Seconds are counted back from the end of the run: work stops at `work`, undoing at `undo`, and at `answer` the
    answer is sent whatever still hangs. CloudFormation waits an hour for an answer that never comes.
    """

    def __init__(self, context: LambdaContext, *, work: float = 10.0, undo: float = 6.0, answer: float = 5.0) -> None:
        self._remaining: Callable[[], int] = context.get_remaining_time_in_millis
        self._kept = work
        self._undo = undo
        self._answer = answer

    @property
    def seconds_to_answer(self) -> float:
        """Seconds from now until the answer must go out; 0 if that is past."""
        return max(0.0, self._remaining() / 1000 - self._answer)

    def check(self) -> None:
        """Raises ArtifactError if it is time to stop."""
        if self._remaining() / 1000 < self._kept:
            raise ArtifactError(
                "time limit: the function's run is nearly over and the work is not done; run the deployment again, "
                "and raise the function's time-out if that repeats"
            )

    def allow_undo(self) -> None:
        """From now on only the time for the answer is kept back."""
        if self._kept < math.inf:
            self._kept = self._undo

    def expire(self) -> None:
        """From now on it is time to stop, for work and for undoing."""
        self._kept = math.inf
