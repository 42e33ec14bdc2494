"""The errors of a request; each has an HTTP status and a one-line text, `field: problem; allowed: …; fix: …`.

HandlerError                base of all: `status` is the HTTP status of the answer
├── BadInputError 400       the request is wrong
├── TooLargeError 413       the request exceeds a limit of the catalog
├── BusyError 503           the queue is full, the request waited too long, or the model's process is ending or loading
├── MemoryExhaustedError 507    one sequence alone does not fit into memory
└── ModelError 500          the model failed, or returned a number that is not finite
"""

from __future__ import annotations

import re
from typing import Any, Protocol, TypeVar

_LONGEST = 500
_LONGEST_REASON = 300
_SHOWN = 60
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]+")


class Output(Protocol):
    """The part of `djl_python.Output`, the server's class of answers, that this handler uses."""

    def add_property(self, key: str, val: Any) -> Any: ...  # noqa: D102 - as the server's
    def add(self, value: Any) -> Any: ...  # noqa: D102
    @staticmethod
    def binary_encode(data: Any) -> bytearray: ...  # noqa: D102


Answer = TypeVar("Answer", bound=Output)


class HandlerError(Exception):
    """The base of the handler's errors; `status` is the HTTP status of the answer."""

    status = 500


class BadInputError(HandlerError):
    """The request cannot be understood; the message starts with the field."""

    status = 400


class TooLargeError(HandlerError):
    """The request exceeds a limit of the catalog."""

    status = 413


class BusyError(HandlerError):
    """The model cannot run the request now; the same request can succeed later."""

    status = 503


class MemoryExhaustedError(HandlerError):
    """A batch was bisected down to one sequence, and memory still ran out."""

    status = 507


class ModelError(HandlerError):
    """The model failed; the request is not at fault."""

    status = 500


def fault(field: str, problem: str, *, allowed: str = "", fix: str = "") -> str:
    """Return an error's text, `field: problem; allowed: …; fix: …`; empty parts are left out."""
    return f"{field}: {problem}" + (f"; allowed: {allowed}" if allowed else "") + (f"; fix: {fix}" if fix else "")


def bad(field: str, value: object, allowed: str) -> BadInputError:
    """Return the error for a field whose value is not allowed."""
    return BadInputError(fault(field, f"got {shown(value)}", allowed=allowed))


def shown(value: object) -> str:
    """Return a caller's value for an error's text: in ASCII, cut after 60 characters with "..."."""
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def one_line(text: str) -> str:
    """Return a message that fits into an HTTP status line: ASCII, no control characters, at most 500 characters.

    For a model in asynchronous mode, DJL Serving 0.36.0 sends an error's text as the reason phrase of the HTTP status
    line.
    """
    ascii_text = text.encode("ascii", "backslashreplace").decode("ascii")
    return _UNPRINTABLE.sub(" ", ascii_text).strip()[:_LONGEST]


def reason_of(error: BaseException) -> str:
    """Return the type and text of a library's error, at most 300 characters, for use inside a message."""
    return one_line(f"{type(error).__name__}: {error}")[:_LONGEST_REASON].rstrip()


def refusal_of(output: type[Answer], error: HandlerError) -> Answer:
    """Return an error as an `Output` that DJL Serving 0.36.0 turns into HTTP status and reason (asynchronous mode)."""
    answer = output()
    answer.add_property("Content-Type", "application/json")
    parts = {"data": "", "last": True, "code": error.status, "error": one_line(str(error))}
    answer.add(output.binary_encode(parts))
    return answer
