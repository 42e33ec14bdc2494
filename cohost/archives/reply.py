"""The response of a custom resource to CloudFormation, and the time limit of the work before the response.

Source: AWS CloudFormation user guide, "Custom resource response objects".
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Protocol

from .errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_log = logging.getLogger(__name__)

_BYTES = 4096
_REASON_CHARACTERS = 2000
_PAUSES_SECONDS = (0.5, 1.0, 0.0)
_TIMEOUT_SECONDS = 3


class Reply:
    """The single answer to one CloudFormation event: the first answer is sent, later answers are dropped.

    `physical_id` is the physical id in a FAILED answer: the resource's id, or, if the resource was never created, an id
    under which a later delete event finds no generation.
    """

    def __init__(self, event: Mapping[str, Any]) -> None:
        self._url: str = event["ResponseURL"]
        self._ids = {key: event.get(key, "") for key in ("StackId", "RequestId", "LogicalResourceId")}
        self.physical_id: str = event.get("PhysicalResourceId") or f"cohost-failed-create-{event.get('RequestId', '')}"
        self._lock = threading.Lock()
        self._sent = False

    def succeed(self, physical_id: str, data: Mapping[str, str]) -> None:
        """Report to CloudFormation that the request succeeded, with the resource's physical id and attributes."""
        self._send({"Status": "SUCCESS", "PhysicalResourceId": physical_id, "Data": dict(data)})

    def fail(self, reason: str) -> None:
        """Report to CloudFormation that the request failed, with the reason; a long reason is truncated."""
        line = " ".join(reason.split())[:_REASON_CHARACTERS] or "unknown"
        answer = {"Status": "FAILED", "PhysicalResourceId": self.physical_id, "Reason": line}
        # The limit counts bytes of JSON, in which one character outside ASCII takes 6 or 12 bytes.
        while len(self._body(answer)) >= _BYTES and answer["Reason"]:
            answer["Reason"] = answer["Reason"][: len(answer["Reason"]) * 3 // 4]
        self._send(answer)

    def _body(self, answer: Mapping[str, object]) -> bytes:
        return json.dumps({**answer, **self._ids}).encode()

    def _send(self, answer: Mapping[str, object]) -> None:
        # The lock is held while sending: a second thread waits, and sends its answer only if the first one failed.
        with self._lock:
            if self._sent:
                _log.warning("an answer was sent already; dropped: %s", answer["Status"])
                return
            _log.info("answering %s %s", answer["Status"], answer.get("Reason", answer["PhysicalResourceId"]))
            _put(self._url, self._body(answer))
            self._sent = True


def _put(url: str, body: bytes) -> None:
    # The URL is signed for an empty content type.
    request = urllib.request.Request(url, data=body, method="PUT", headers={"Content-Type": ""})  # noqa: S310
    for attempt, pause in enumerate(_PAUSES_SECONDS, start=1):
        try:
            # The URL comes from CloudFormation, in an event that only CloudFormation may send.
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS):  # noqa: S310
                return
        except OSError as error:
            if attempt == len(_PAUSES_SECONDS):
                raise
            _log.warning("answer not taken (%s), attempt %d", error, attempt)
            time.sleep(pause)


class LambdaContext(Protocol):
    """The part of Lambda's context object that `Deadline` uses."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until Lambda ends this run of the function."""


class Deadline:
    """The time limits of one run of the Lambda function, each in seconds before Lambda ends the run.

    Work stops at `work`, and the undoing of failed work at `undo`; at `answer` the answer to CloudFormation is sent
    even if a call still hangs. Without an answer, CloudFormation would wait for an hour.
    """

    def __init__(self, context: LambdaContext, *, work: float = 10.0, undo: float = 6.0, answer: float = 5.0) -> None:
        self._remaining: Callable[[], int] = context.get_remaining_time_in_millis
        self._kept = work
        self._undo = undo
        self._answer = answer

    @property
    def seconds_to_answer(self) -> float:
        """Return the seconds from now until the answer must be sent; 0 if that moment is past."""
        return max(0.0, self._remaining() / 1000 - self._answer)

    def check(self) -> None:
        """Raise ArtifactError if the time limit has passed: `work`, or `undo` once `allow_undo` has been called."""
        if self._remaining() / 1000 < self._kept:
            raise ArtifactError(
                "publishing-too-slow",
                "time limit",
                "the function's time-out is near and the work is not done",
                fix="run the deployment again, and raise the function's time-out if that repeats",
            )

    def allow_undo(self) -> None:
        """Replace the limit `work` by the limit `undo`, so that a failed attempt can be undone."""
        if self._kept < math.inf:
            self._kept = self._undo

    def expire(self) -> None:
        """Make every later call of `check` raise ArtifactError, even while failed work is being undone."""
        self._kept = math.inf
