"""Fault injection into a process that runs models: every later forward pass hangs, or fails as on a lost device.

Python imports a module named `sitecustomize` at its start. So a signal can inject a fault into the engine processes
that handlers start, without any code in the handler.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from typing import Any

ENABLED = "COHOST_LMI_FAULTS"
SIGNALS = {"hang": signal.SIGUSR1, "lose_device": signal.SIGUSR2}
# The text of the error that torch raises in every later call of a process whose device is broken.
_LOST_DEVICE = "CUDA error: an illegal memory access was encountered"


def break_forward_passes(fault: str) -> None:
    """Inject `fault` ("hang" or "lose_device") into each forward pass of this process from now on.

    torch calls a hook before each module's `forward`, which the handler does not notice. With "hang", the thread of the
    forward pass waits for ever, with Python's interpreter lock released, so other threads continue.
    """
    from torch.nn.modules.module import register_module_forward_pre_hook

    register_module_forward_pre_hook({"hang": _hang, "lose_device": _lose_device}[fault])


def _hang(*_: Any) -> None:  # torch's module and its arguments
    threading.Event().wait()


def _lose_device(*_: Any) -> None:  # torch's module and its arguments
    raise RuntimeError(_LOST_DEVICE)


def take_faults() -> None:
    """Make this process inject a fault into itself when it gets the fault's signal (SIGUSR1 or SIGUSR2)."""
    for fault, number in SIGNALS.items():
        signal.signal(number, functools.partial(_taken, fault))


def _taken(fault: str, *_: object) -> None:
    break_forward_passes(fault)


if __name__ == "sitecustomize" and ENABLED in os.environ:
    take_faults()
