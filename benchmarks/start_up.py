"""Compare the start-up time of the CDK app and of the command line with the time that their libraries need.

`app.py` is compared with a CDK app of one bucket, both in the environment that the cdk command sets. `cohost --help` is
compared with the imports of typer and rich. All programs run alternately. The medians of user plus system seconds,
child processes included, are compared. The exit code is 1 if a ratio exceeds the goal. Run it as `python
benchmarks/start_up.py`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
GOAL: Final = 1.5
RUNS: Final = 5

ONE_BUCKET: Final = """
import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
app = cdk.App()
s3.Bucket(cdk.Stack(app, "Stack"), "Bucket")
app.synth()
"""

# The measured commands, and their baselines.
PAIRS: Final = {
    "app.py": (["app.py"], ["-c", ONE_BUCKET]),
    "cohost --help": (["-m", "cohost", "--help"], ["-c", "import typer, rich.console, rich.table"]),
}


def cpu_seconds(arguments: list[str], outdir: Path) -> float:
    """Return the user and system seconds of a Python process and its children.

    Raises:
        RuntimeError: the process ended with an error.
    """
    # -W ignore: jsii warns of Node.js versions. The compiled bytecode is kept, as for every user.
    process = subprocess.Popen(  # noqa: S603 - this interpreter, arguments from above
        [sys.executable, *arguments], cwd=ROOT, env=_environment(outdir), stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise RuntimeError(f"{arguments[0]} ended with status {status}")
    return usage.ru_utime + usage.ru_stime


def _environment(outdir: Path) -> dict[str, str]:
    """Return this process's environment plus the variables that the cdk command sets: folder, region, context."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    context = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    cdk = {"CDK_OUTDIR": str(outdir), "CDK_DEFAULT_REGION": "us-east-1", "CDK_CONTEXT_JSON": json.dumps(context)}
    return {**kept, **cdk, "PYTHONPATH": str(ROOT)}


def main() -> int:
    """Measure the start-ups, print their ratios to the baselines, and return 1 if a ratio exceeds the goal."""
    seconds: dict[tuple[str, bool], list[float]] = {(name, own): [] for name in PAIRS for own in (True, False)}
    with tempfile.TemporaryDirectory() as folder:
        for run in range(RUNS + 1):
            for (name, own), taken in seconds.items():
                used = cpu_seconds(PAIRS[name][0 if own else 1], Path(folder) / f"{run}-{own}")
                if run:  # The first run fills the caches of bytecode and of jsii.
                    taken.append(used)
    worst = 0.0
    for name in PAIRS:
        own, least = (statistics.median(seconds[name, which]) for which in (True, False))
        print(f"{name}: {own:.2f} s of CPU, its libraries alone {least:.2f} s: ratio {own / least:.2f}, goal {GOAL}")
        worst = max(worst, own / least)
    return 0 if worst <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
