"""Start the local AWS emulator on a free port for measurements, deploy to it with cdk, and always stop it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cohost.deploy import local_aws as local
from cohost.errors import CohostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


ROOT = Path(__file__).parents[2]
TOKENIZERS = ROOT / "local_aws" / "data" / "hub"
EXIT_FAULT, EXIT_INTERRUPTED = 1, 130


class Machine:
    """A running emulator; `folder` is deleted at its end, and `environment` points child processes to the emulator."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment

    def cdk(self, *arguments: str) -> int:
        """Run a cdk command and return its exit code; the output of a command that fails is shown."""
        sys.stderr.write(f"cdk {' '.join(arguments)}\n")
        command = [str(ROOT / "node_modules" / ".bin" / "cdk"), *arguments, "--output", str(self._folder / "cdk.out")]
        done = subprocess.run(  # noqa: S603 - the project's own cdk
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
        return done.returncode

    def cohost(self, *arguments: str) -> int:
        """Run a `cohost` command in the current folder; return its exit code."""
        command = [sys.executable, "-m", "cohost", *arguments]
        return subprocess.run(command, env=self._environment, check=False).returncode  # noqa: S603 - our own command


@contextlib.contextmanager
def running(catalog: Path) -> Iterator[Machine]:
    """Start the emulator for a catalog, and stop it when the `with` block ends, also after an error.

    Raises:
        LocalError: the emulator does not start.
    """
    with tempfile.TemporaryDirectory(prefix="cohost-load-") as name:
        folder = Path(name)
        state = folder / "state"
        try:
            server = local.start(port=0, state=state, catalog=catalog)
            environment = {**os.environ, **server.environment(catalog)}
            environment.pop("AWS_PROFILE", None)
            # cdk starts `python3 app.py`, and python3 must be the interpreter of this environment.
            environment["PATH"] = os.pathsep.join(
                [str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]
            )
            yield Machine(folder, environment)
        finally:
            local.stop(state)


def run(catalog: Path, steps: Callable[[Machine], Iterator[int]]) -> int:
    """Start an emulator for a catalog, run steps on it until one fails, and return an exit code.

    The exit code is that of the failed step, or 0 if none failed; 1 after a `CohostError`, which is printed; 130 after
    Ctrl-C.
    """
    try:
        with running(catalog) as machine:
            return next((code for code in steps(machine) if code), 0)
    except CohostError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_FAULT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
