"""Search all tracked files for secrets; .secrets.baseline lists the accepted findings, which are no secrets.

`python tools/scan_secrets.py` changes no file and needs no network. `--accept` rewrites .secrets.baseline, so that all
present findings are accepted; the file's diff shows the hashes of the added findings. If git lists no files, a line
says that secrets could not be checked; with `--complete`, the option of `make audit`, the program fails then.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from detect_secrets.core.baseline import format_for_output, load
from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import configure_settings_from_baseline

ROOT: Final = Path(__file__).parent.parent
BASELINE: Final = ROOT / ".secrets.baseline"
PROCESSES: Final = 2


def main(arguments: list[str]) -> int:
    """Print each finding that is not in the baseline, and return 1 if there is any.

    If git lists no files, nothing can be checked: then return 1 with `--complete`, otherwise 0.
    """
    files = _tracked()
    if not files:
        print("could not be checked: secrets: git does not list the project's files; make audit fails until it does")
        return int("--complete" in arguments)
    accepted = json.loads(BASELINE.read_text())
    configure_settings_from_baseline(accepted)
    found = SecretsCollection()
    # The scan runs in the project's root, because the baseline's patterns are for names relative to this folder.
    with contextlib.chdir(ROOT):
        found.scan_files(*files, num_processors=PROCESSES)
    if arguments == ["--accept"]:
        BASELINE.write_text(json.dumps(format_for_output(found, is_slim_mode=True), indent=1) + "\n")
        print(f"secrets: {sum(1 for _ in found)} findings are accepted; look at the diff of {BASELINE.name}")
        return 0
    new = [secret for _, secret in found - load(accepted, filename=str(BASELINE))]
    for secret in sorted(new, key=lambda one: (one.filename, one.line_number)):
        print(
            f"{secret.filename}:{secret.line_number}: looks like a secret ({secret.type}); fix: take it out and change "
            "it where it is valid; if it is none: python tools/scan_secrets.py --accept"
        )
    return 1 if new else 0


def _tracked() -> list[str]:
    """Return the names of the project's tracked files; an empty list outside a git checkout, or without git."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)  # noqa: S607 - whichever git the user has
    except (OSError, subprocess.CalledProcessError):
        return []
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
