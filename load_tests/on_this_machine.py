"""The short standard load test against the AWS on this machine: `make load`.

Starts the emulation on a free port, deploys the offline encoders with the real cdk command, runs
`cohost bench --short`, and ends the emulation, whatever happened.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cohost import local
from cohost.errors import CohostError

ROOT = Path(__file__).parents[1]
CATALOG = ROOT / "model_configs" / "offline.yaml"
TOKENIZERS = ROOT / "local_aws" / "data" / "hub"
EXIT_INTERRUPTED = 130
CDK_STEPS = (("bootstrap",), ("deploy", "LmiCohostStack", "--require-approval", "never"))


def main() -> int:
    """Run it; the exit code of the load test, or of the cdk command that failed."""
    with tempfile.TemporaryDirectory(prefix="cohost-load-") as folder:
        state = Path(folder) / "state"
        try:
            server = local.start(port=0, state=state, catalog=CATALOG)
            environment = {**os.environ, **server.environment(CATALOG)}
            environment.pop("AWS_PROFILE", None)
            # cdk starts `python3 app.py`, which must be this environment's.
            environment["PATH"] = os.pathsep.join(
                [str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]
            )
            return _deploy(environment, Path(folder)) or _bench(environment)
        except CohostError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        finally:
            local.stop(state)


def _deploy(environment: dict[str, str], folder: Path) -> int:
    """Bootstrap and deploy; 0, or the exit code of the step that failed, whose output is shown then."""
    for step in CDK_STEPS:
        sys.stderr.write(f"cdk {step[0]}\n")
        command = [str(ROOT / "node_modules" / ".bin" / "cdk"), *step, "--output", str(folder / "cdk.out")]
        done = subprocess.run(  # noqa: S603 - the project's own cdk
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
            return done.returncode
    return 0


def _bench(environment: dict[str, str]) -> int:
    command = [sys.executable, "-m", "cohost", "bench", "--short", "--mixed-lengths", "--hub", str(TOKENIZERS)]
    command += ["--label", "offline encoders, this machine", *sys.argv[1:]]
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603 - our own command


if __name__ == "__main__":
    sys.exit(main())
