"""Programs of this machine: found on PATH, run, and told about in one line when they fail."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from local_aws.engines.engine import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMEOUT_S = 60.0


def find_program(name: str, *, needed_for: str, fix: str) -> str:
    """The path of a program.

    Raises:
        EngineError: it is not on PATH.
    """
    path = shutil.which(name)
    if path is None:
        msg = f"{needed_for}: {name} is not on PATH; allowed: a machine that has it; fix: {fix}"
        raise EngineError(msg)
    return path


def answer_of(command: Sequence[str], timeout_s: float | None = _TIMEOUT_S) -> str | None:
    """What a program prints; None when it is not there, fails, or takes too long."""
    try:
        result = subprocess.run(  # noqa: S603 - a list, no shell
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None


def run_program(command: Sequence[str], *, fault: str, timeout_s: float | None = _TIMEOUT_S) -> str:
    """What a program prints.

    Raises:
        EngineError: `fault`, with the last line that the program said of it.
    """
    try:
        result = subprocess.run(  # noqa: S603 - a list, no shell
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"{fault} ({error})"
        raise EngineError(msg) from error
    if result.returncode != 0:
        said = (result.stderr.strip() or result.stdout.strip() or f"exit code {result.returncode}").splitlines()[-1]
        msg = f"{fault} ({said})"
        raise EngineError(msg)
    return result.stdout
