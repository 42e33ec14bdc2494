"""Write errors.md: every error that the project raises with its code and text, read from its source.

`python docs/error_texts.py` writes errors.md; a test checks that errors.md agrees with the source. A value that the
code inserts into an error's text appears as `{name}`.
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
ROOT_ERROR: Final = "CodedError"
# Its call states an error of a catalog's field; the field's name comes from where the value stands.
FIELD_FAULT: Final = "refuse"

HEAD: Final = """# Error texts
Every error that this project raises, by its kind, with its code; `{…}` stands for a value. The text itself carries what
is allowed and the fix. Search this page for the words of a message; [When something fails](troubleshooting.md) has what
AWS and the container say.

A code keeps its meaning between versions, the words may change. With `--json` a command that fails prints
`{"errors": [{"code", "field", "problem", "allowed", "fix", "message"}]}` on standard output.

This page is written from the source by `make docs`.
"""


@dataclass(frozen=True, order=True)
class Text:
    """One error message: the error's class, its code, its text, and the module that raises the error."""

    kind: str
    code: str
    words: str
    module: str


def collect() -> list[Text]:
    """Return all error messages of the project, sorted and without repetitions."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(_sources())}
    kinds = _family(trees.values())
    return sorted({text for path, tree in trees.items() for text in _texts(path, tree, kinds)})


def uncoded() -> list[str]:
    """Return the places (`file:line`) that create an error from its text alone, except errors that gather others."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(_sources())}
    gathering = {name for tree in trees.values() for name in _gathering(tree)}
    kinds = _family(trees.values()) - _family(trees.values(), gathering) | {FIELD_FAULT}
    return [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path, tree in trees.items()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in kinds
        if len(call.args) == 1 and not isinstance(call.args[0], ast.Starred)
    ]


def page(texts: Iterable[Text]) -> str:
    """Return the content of errors.md: the given messages, with a heading for each error class."""
    lines = [HEAD]
    kind = ""
    for text in texts:
        if text.kind != kind:
            kind = text.kind
            lines.append(f"\n## {'Faults of a field of the catalog' if kind == FIELD_FAULT else f'`{kind}`'}\n")
        lines.append(f"- `{text.code}` {_escaped(text.words)} <small>`{text.module}`</small>")
    return "\n".join(lines) + "\n"


def _sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (ROOT / folder).rglob("*.py")


def _family(trees: Iterable[ast.Module], roots: Iterable[str] = (ROOT_ERROR,)) -> frozenset[str]:
    """Return the names in `roots` and of all classes that derive from these classes, directly or indirectly."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = set(roots)
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return frozenset(found)


def _gathering(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the classes whose `__init__` takes no `code`, because such errors gather other errors."""
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        methods = (method for method in node.body if isinstance(method, ast.FunctionDef))
        given = (method.args.args for method in methods if method.name == "__init__")
        if any("code" not in {argument.arg for argument in arguments} for arguments in given):
            yield node.name


def _texts(path: Path, tree: ast.Module, kinds: frozenset[str]) -> Iterator[Text]:
    module = path.relative_to(ROOT).as_posix()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        kind = call.func.id
        if not call.args or not isinstance(call.args[0], ast.Constant):
            continue  # the code comes from a fault that another page lists
        if kind in kinds and len(call.args) == len(("code", "field", "problem")):
            code, field, problem = map(_literal, call.args)
            yield Text(kind, code, f"{field}: {problem}{_way_out(call)}", module)
        elif kind == FIELD_FAULT and len(call.args) == len(("code", "problem")):
            code, problem = map(_literal, call.args)
            yield Text(kind, code, f"{problem}{_way_out(call)}", module)


def _way_out(call: ast.Call) -> str:
    given = {keyword.arg: _literal(keyword.value) for keyword in call.keywords}
    return "".join(f"; {part}: {given[part]}" for part in ("allowed", "fix") if given.get(part))


def _literal(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return re.sub(r"\s+", " ", "".join(map(_literal, parts)))
        case ast.FormattedValue(value=value):
            return f"{{{_name(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _literal(left) + _literal(right)
    return f"{{{_name(node)}}}"


def _name(value: ast.expr) -> str:
    match value:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
    return "…"


def _escaped(words: str) -> str:
    """Return an error's text with the characters escaped that Markdown would interpret."""
    return re.sub(r"([\\*_<>\[\]`|])", r"\\\1", words)


if __name__ == "__main__":
    PAGE.write_text(page(collect()), encoding="utf-8")
