"""The demo stopped half-way: nothing may go on running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from cohost.deploy import local_aws as local

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def processes_of(state: Path) -> list[str]:
    """Return the command lines of all processes that have the state folder as an argument."""
    lines = []
    for process in psutil.process_iter():
        try:
            lines.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return [line for line in lines if str(state) in line]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_demo_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM end `cohost demo` with exit code 130, and end its server and all child processes."""
    state = tmp_path / "state"
    with subprocess.Popen(
        [sys.executable, "-m", "cohost", "demo", "--state", str(state)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as demo:
        deadline = time.monotonic() + 60
        while local.find(state) is None and demo.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert demo.poll() is None, demo.communicate()[0].decode()
        assert local.find(state) is not None
        # As a terminal does it: Ctrl-C reaches the whole foreground group, kill just the one process.
        os.killpg(demo.pid, number) if number == signal.SIGINT else os.kill(demo.pid, number)
        demo.communicate(timeout=60)

    assert demo.returncode == 130
    assert processes_of(state) == []
