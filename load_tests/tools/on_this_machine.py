"""`make load`: run the short standard load test against the local AWS emulator.

The program starts the emulator on a free port, deploys the offline models with the real cdk command, and runs `cohost
bench --short`. At the end, the program always stops the emulator.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from load_tests.tools.machine import ROOT, TOKENIZERS, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from load_tests.tools.machine import Machine


CATALOG = ROOT / "model_configs" / "offline.yaml"


def main() -> int:
    """Run the short load test; return its exit code, or the exit code of the cdk command that failed."""
    return run(CATALOG, _steps)


def _steps(machine: Machine) -> Iterator[int]:
    yield machine.cdk("bootstrap")
    yield machine.cdk("deploy", "LmiCohostStack", "--require-approval", "never")
    bench = ("bench", "--short", "--mixed-lengths", "--hub", str(TOKENIZERS))
    yield machine.cohost(*bench, "--label", "offline encoders, this machine", *sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
