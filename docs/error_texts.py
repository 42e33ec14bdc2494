"""Write errors.md: every error text that the project raises, read from its source.

`python docs/error_texts.py` writes the page; a test checks that it equals the source. Values in a text appear as
`{name}`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "errors.md"
FOLDERS: Final = ("cohost", "constructs_lib", "stacks", "load_tests", "local_aws")
ROOT_ERRORS: Final = frozenset({"CohostError", "ArtifactError"})
# What pydantic turns into a fault of the catalog.
FIELD_FAULT: Final = "ValueError"

HEAD: Final = """# Error texts
Every error that this project raises, by its kind; `{…}` stands for a value. The text itself carries what is allowed and
the fix. Search this page for the words of a message; [When something fails](troubleshooting.md) has what AWS and the
container say.

This page is written from the source by `make docs`.
"""


@dataclass(frozen=True, order=True)
class Text:
    """One message: the error's class, the module that raises it, and the text."""

    kind: str
    module: str
    words: str


def collect() -> list[Text]:
    """Return all messages of the project, sorted and each once."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(_sources())}
    kinds = _family(trees.values())
    return sorted({text for path, tree in trees.items() for text in _texts(path, tree, kinds)})


def page(texts: Iterable[Text]) -> str:
    """Render the page as Markdown."""
    lines = [HEAD]
    kind = ""
    for text in texts:
        if text.kind != kind:
            kind = text.kind
            lines.append(f"\n## {'Faults of a field of the catalog' if kind == FIELD_FAULT else f'`{kind}`'}\n")
        lines.append(f"- {_escaped(text.words)} <small>`{text.module}`</small>")
    return "\n".join(lines) + "\n"


def _sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (ROOT / folder).rglob("*.py")


def _family(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Return the names of all classes that derive from the roots, directly or not."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = set(ROOT_ERRORS)
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return frozenset(found)


def _texts(path: Path, tree: ast.Module, kinds: frozenset[str]) -> Iterator[Text]:
    module = path.relative_to(ROOT).as_posix()
    wanted = kinds | {FIELD_FAULT} if module.startswith("cohost/catalog/") else kinds
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        for kind, argument in _raised(function, wanted):
            for words in _words(argument, function):
                yield Text(kind, module, words)


def _raised(function: ast.AST, kinds: frozenset[str]) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds and node.args:
            yield node.func.id, node.args[0]


def _words(node: ast.expr, function: ast.AST) -> Iterator[str]:
    """Yield the texts that an argument can have; nothing for a text from elsewhere."""
    if isinstance(node, ast.List | ast.Tuple):
        for element in node.elts:
            yield from _words(element, function)
    elif isinstance(node, ast.Name):
        for assigned in ast.walk(function):
            if isinstance(assigned, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == node.id for target in assigned.targets
            ):
                yield from _words(assigned.value, function)
    elif (words := _literal(node)) and re.search(r"\w+ \w+ \w+", words):
        yield " ".join(words.split())


def _literal(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_literal, parts))
        case ast.FormattedValue(value=value):
            return f"{{{_name(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _literal(left) + _literal(right)
    return ""


def _name(value: ast.expr) -> str:
    match value:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
    return "…"


def _escaped(words: str) -> str:
    """Escape the words for Markdown."""
    return re.sub(r"([\\*_<>\[\]`|])", r"\\\1", words)


if __name__ == "__main__":
    PAGE.write_text(page(collect()), encoding="utf-8")
