"""The sizes that keep the house easy to hold in one head: modules to a folder, lines to a module."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("cohost", "constructs_lib", "load_tests", "local_aws", "stacks")
MODULES = {
    path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines())
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=str)
def test_a_folder_can_be_overlooked(folder: Path) -> None:
    """A folder holds at most 15 modules beside other folders, and at most 25 alone."""
    beside_folders = any(other.parent.parent == folder for other in MODULES if other.parent != folder)
    assert Counter(path.parent for path in MODULES)[folder] <= (15 if beside_folders else 25)


def test_a_module_is_a_theme() -> None:
    """No module is over 500 lines, and those of the emulator are no crumbs: their median is 140 lines or more."""
    assert {str(path): lines for path, lines in MODULES.items() if lines > 500} == {}
    emulator = [
        lines
        for path, lines in MODULES.items()
        if path.parts[0] == "local_aws" and path.name != "__init__.py" and "testing" not in path.parts
    ]
    assert statistics.median(emulator) >= 140
