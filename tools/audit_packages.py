"""Print the known vulnerabilities of the pinned Python packages.

`python tools/audit_packages.py` needs the advisory service that `pip-audit` queries. If the service cannot be
reached in time, or has none of the packages, a line states that, and the check passes, so that it runs offline.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
REQUIREMENTS: Final = ROOT / "requirements-all.txt"
SECONDS: Final = 30
"""The time limit of the query, in seconds: `make check` is to end within a minute, even if the service hangs."""


def main() -> int:
    """Print each known vulnerability with the version that fixes it; return 1 if there is one."""
    answer = _ask()
    if isinstance(answer, str):
        print(f"packages: could not be checked for known faults: {answer}")
        return 0
    checked = [one for one in answer if "vulns" in one]
    faults = [(one, fault) for one in checked for fault in one["vulns"]]
    for package, fault in faults:
        fixed = ", ".join(fault.get("fix_versions", [])) or "no version yet"
        print(f"packages: {package['name']} {package['version']} has {fault['id']}; fix: {fixed}, then make lock")
    if not checked:
        print("packages: could not be checked for known faults: the advisory service has none of them")
    elif not faults:
        print(
            f"packages: no fault is known of {len(checked)} of {len(answer)}; the others are not known to the service"
        )
    return 1 if faults else 0


def _ask() -> list[dict[str, Any]] | str:
    """Return pip-audit's entry for each package with its vulnerabilities, or the reason why there is no answer."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "audit.json"
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(REQUIREMENTS), "--disable-pip"]
        command += ["--require-hashes", "--progress-spinner", "off", "--timeout", "5"]
        command += ["--format", "json", "--output", str(report)]
        try:
            ended = subprocess.run(command, capture_output=True, check=False, text=True, timeout=SECONDS)  # noqa: S603 - a command of our own
        except subprocess.TimeoutExpired:
            return f"no answer of the advisory service within {SECONDS} seconds"
        if not report.is_file() or not report.stat().st_size:
            return (ended.stderr.strip().splitlines() or ["pip-audit printed nothing"])[-1]
        found: list[dict[str, Any]] = json.loads(report.read_text())["dependencies"]
        return found


if __name__ == "__main__":
    sys.exit(main())
