"""JSON text as the real server's Gson writes it."""

from __future__ import annotations

import json
import re
from typing import Any

# Gson escapes these so that its output is safe inside HTML (Gson user guide); DJL Serving leaves that on.
_HTML_ESCAPES = {character: f"\\u{ord(character):04x}" for character in "<>&='\u2028\u2029"}
_HTML_SENSITIVE = re.compile("[" + "".join(_HTML_ESCAPES) + "]")


def pretty(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Text of the server's own answers: indented by two, ended by a line feed."""
    return _escaped(json.dumps(value, indent=2, ensure_ascii=False)) + "\n"


def compact(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Text without blanks, as in error answers of asynchronous handlers."""
    return _escaped(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def _escaped(text: str) -> str:
    return _HTML_SENSITIVE.sub(lambda match: _HTML_ESCAPES[match.group()], text)
