"""The `cdk` command of this project, run for one catalog."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from cohost.errors import LocalError


def cdk_command(*arguments: str, catalog: Path) -> list[str]:
    """The command line of `cdk` with the catalog as its context.

    Raises:
        LocalError: there is no `cdk`.
    """
    found = shutil.which("cdk") or shutil.which("cdk", path=str(Path.cwd() / "node_modules" / ".bin"))
    if found is None:
        raise LocalError("cdk is not on the PATH; fix: make setup, and run this in the project's folder")
    return [os.path.realpath(found), *arguments, "--context", f"catalog={catalog}"]
