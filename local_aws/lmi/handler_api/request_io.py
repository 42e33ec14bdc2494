"""What an input formatter returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class RequestInput:
    """One parsed request: `parameters` go to the pipeline as keyword arguments."""

    parameters: Any = field(default_factory=dict)


@dataclass
class TextInput(RequestInput):
    """A request whose input is text, a text pair, or a list of either."""

    input_text: Any = None
