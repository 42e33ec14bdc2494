"""Faults of a device, set off from outside: every later forward pass of this process hangs, or raises.

The handler knows nothing of it: torch calls what is registered here before each module's `forward`.
"""

from __future__ import annotations

import threading
from typing import Any

HANG = "hang"
LOSE_DEVICE = "lose_device"
# What a broken device makes torch raise, in every later call of the process.
_LOST_DEVICE = "CUDA error: an illegal memory access was encountered"


def break_forward_passes(fault: str) -> None:
    """Have torch run into `fault` ("hang" or "lose_device") before each forward pass from now on.

    The thread of a pass that hangs waits for ever, with Python's lock released, so other threads go on.
    """
    from torch.nn.modules.module import register_module_forward_pre_hook  # noqa: PLC0415 - only here is it needed

    register_module_forward_pre_hook({HANG: _hang, LOSE_DEVICE: _lose_device}[fault])


def _hang(*_: Any) -> None:  # noqa: ANN401 - torch's module and its arguments
    threading.Event().wait()


def _lose_device(*_: Any) -> None:  # noqa: ANN401 - torch's module and its arguments
    raise RuntimeError(_LOST_DEVICE)
