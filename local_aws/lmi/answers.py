"""Answers to requests, made by a handler or by the server, and their JSON text, formatted as by the real server's Gson.

Server, models and worker processes all use this module, so it imports only the module of errors. Source: exchanges with
DJL Serving 0.36.0, recorded in tests/data/djl_vectors and tests/data/djl_lifecycle.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from local_aws.lmi.errors import Fault


# Gson escapes these characters so that its output is safe inside HTML (Gson user guide); DJL Serving keeps this on.
_HTML_ESCAPES = {character: f"\\u{ord(character):04x}" for character in "<>&='\u2028\u2029"}
_HTML_SENSITIVE = re.compile("[" + "".join(_HTML_ESCAPES) + "]")


def pretty(value: Any) -> str:
    """Return a value as JSON in the form of the server's own answers: indented by two blanks, ended by a line feed."""
    return _escaped(json.dumps(value, indent=2, ensure_ascii=False)) + "\n"


def compact(value: Any) -> str:
    """Return a value as JSON without blanks between its elements, as in error answers of asynchronous handlers."""
    return _escaped(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def _escaped(text: str) -> str:
    return _HTML_SENSITIVE.sub(lambda match: _HTML_ESCAPES[match.group()], text)


def fault_text(fault: Fault) -> str:
    """Return the JSON text of an error answer: `{"code", "type", "message"}`.

    A message that is None is left out, as in the real server's answers to loads that take too long (recording 07, model
    "initto").
    """
    error: dict[str, Any] = {"code": fault.status, "type": fault.kind}
    if fault.message is not None:
        error["message"] = fault.message
    return pretty(error)


@dataclass(frozen=True, slots=True)
class Answer:
    """A handler's answer to one request.

    `code` and `message` become the status line, `properties` the headers.
    """

    code: int
    message: str
    properties: dict[str, str]
    body: bytes


class Unanswered(Exception):  # noqa: N818 - not an error: it ends the wait for an answer
    """The request stays without an answer: its caller has left, or the server closes the caller's connection."""
