"""Print the known vulnerabilities of the pinned Python packages.

`python tools/audit_packages.py` needs the advisory service that `pip-audit` queries. If the service cannot be reached
in time or does not know a package, the program prints a line that begins with "could not be checked", and does not
claim that no fault is known. Such a package does not make the program fail, so that `make check` runs offline. With
`--complete`, the option of `make audit`, the program fails.
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
SHOWN: Final = 5
SECONDS: Final = 30
"""The time limit of the query, in seconds: `make check` is to end within a minute, even if the service hangs."""


def main(arguments: list[str]) -> int:
    """Print each known vulnerability with the version that fixes it, and the packages that could not be checked.

    Return 1 if a vulnerability is known or, with `--complete`, if a package could not be checked; otherwise 0.
    """
    answer = _ask()
    entries, reason = ([], answer) if isinstance(answer, str) else (answer, "the advisory service does not know")
    checked = [one for one in entries if "vulns" in one]
    unknown = [str(one["name"]) for one in entries if "vulns" not in one]
    faults = [(one, fault) for one in checked for fault in one["vulns"]]
    for package, fault in faults:
        fixed = ", ".join(fault.get("fix_versions", [])) or "no version yet"
        print(f"packages: {package['name']} {package['version']} has {fault['id']}; fix: {fixed}, then make lock")
    if not checked:
        what = f"all {len(unknown)} packages, which {reason}" if unknown else reason
        print(f"could not be checked: known faults of packages: {what}; make audit fails until they are")
    elif unknown:
        names = ", ".join(unknown[:SHOWN]) + (f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else "")
        print(f"packages: {len(checked)} of {len(entries)} were checked")
        print(
            f"could not be checked: {len(unknown)} packages, which {reason}: {names}; make audit fails until they are"
        )
    elif not faults:
        print(f"packages: all {len(checked)} were checked, and no fault is known")
    incomplete = "--complete" in arguments and (not checked or bool(unknown))
    return 1 if faults or incomplete else 0


def _ask() -> list[dict[str, Any]] | str:
    """Return pip-audit's entry for each package, with its vulnerabilities, or the reason why there is no answer."""
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
    sys.exit(main(sys.argv[1:]))
