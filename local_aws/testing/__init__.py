"""Waiting for a condition."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_for(condition: Callable[[], Any], limit_s: float = 60, *, pause_s: float = 0.05) -> None:
    """Wait until a condition holds, checked again after each pause; fail the test after the timeout."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(pause_s)
