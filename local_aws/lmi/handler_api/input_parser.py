"""Marks functions of a `model.py` that replace a part of the stock handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])

FORMATTER_MARK = "is_input_formatter"


def input_formatter(function: F) -> F:
    """Marks a function (Input, **settings) → TextInput that the stock handler then calls for each request."""
    setattr(function, FORMATTER_MARK, True)
    return function
