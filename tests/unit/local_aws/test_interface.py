"""The emulator's README lists all that it takes of the core."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "local_aws"
GLUE = {"__main__.py", "demo", "engines", "testing"}


def taken() -> dict[str, set[str]]:
    """Return the names that the emulator imports from each module of the core."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in FOLDER.rglob("*.py"):
        if path.relative_to(FOLDER).parts[0] in GLUE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cohost":
                found[str(node.module)] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Import):
                assert not any(alias.name.split(".")[0] == "cohost" for alias in node.names), path
    return found


def test_the_readme_lists_what_is_taken() -> None:
    """The emulator's README lists exactly the modules of cohost that the emulator imports."""
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(cohost\.[\w.]+)` \| (.+) \|$", readme, re.MULTILINE)
    assert {module: set(re.findall(r"`(\w+)`", names)) for module, names in rows} == taken()
