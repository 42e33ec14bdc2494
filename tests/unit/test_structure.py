"""The limits of size: modules per folder, lines per module; and the rule for docstrings."""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PACKAGES = ("cohost", "constructs_lib", "load_tests", "local_aws", "stacks")
SOURCES = {
    path.relative_to(ROOT): path.read_text(encoding="utf-8")
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}
# An archive holds the handler's modules flat at its root, because the server imports no folders.
FLAT = {Path("cohost/handler"): 32}
MODULES = {path: len(source.splitlines()) for path, source in SOURCES.items()}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
QUESTION = re.compile(r"(What|How|Whether|Where|Which|Who|Whose)\b")


def questions(source: str) -> Iterator[str]:
    """Yield line and first line of each docstring that begins with a question word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and QUESTION.match(text := ast.get_docstring(node) or ""):
            yield f"{node.body[0].lineno}: {text.splitlines()[0]}"


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=str)
def test_a_folder_can_be_overlooked(folder: Path) -> None:
    """A folder holds at most 15 modules beside other folders, and at most 25 alone, or 32 of the handler."""
    beside_folders = any(other.parent.parent == folder for other in MODULES if other.parent != folder)
    assert Counter(path.parent for path in MODULES)[folder] <= (15 if beside_folders else FLAT.get(folder, 25))


def test_a_module_is_a_theme() -> None:
    """No module has over 500 lines, and the median of the emulator's modules is at least 140 lines."""
    assert {str(path): lines for path, lines in MODULES.items() if lines > 500} == {}
    emulator = [
        lines
        for path, lines in MODULES.items()
        if path.parts[0] == "local_aws" and path.name != "__init__.py" and "testing" not in path.parts
    ]
    assert statistics.median(emulator) >= 140


def test_a_docstring_names_the_effect() -> None:
    """No docstring of the project begins with a question word."""
    assert [f"{path}:{found}" for path, source in SOURCES.items() for found in questions(source)] == []


@pytest.mark.parametrize(("text", "found"), [("Whether it holds.", 1), ("Whose?", 1), ("Return True. Who?", 0)])
def test_a_question_is_found(text: str, found: int) -> None:
    """A question word is found at the beginning of a docstring of a module, a class or a function, and nowhere else."""
    documented = f'"""{text}"""\nclass A:\n    """{text}"""\n    async def f(self):\n        """{text}"""\n'
    assert len(list(questions(documented))) == 3 * found
