"""Find duplicate code: sequences of statements that differ only in the names of variables and in strings.

`python tools/duplicate_code.py` compares the statements of all functions by their syntax trees. Lists of fields,
signatures, imports and docstrings are not compared. EXCEPTIONS has the allowed duplicates with their reasons. An
exception whose duplicate no longer exists is reported, too.
"""

from __future__ import annotations

import ast
import itertools
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parent.parent
FOLDERS: Final = ("cohost", "constructs_lib", "load_tests", "local_aws", "stacks", "tools", "benchmarks")
LEAST_NODES: Final = 24
"""The fewest syntax nodes of a run that is compared: about five lines. Shorter runs are alike by chance."""

Pair = tuple[str, str]
EXCEPTIONS: Final[Mapping[Pair, str]] = {
    ("benchmarks/drills.py:command_line", "benchmarks/shared.py:command_line"): "lists of options",
    (
        "cohost/handler/cohost_frames.py:_head",
        "local_aws/lmi/server/management.py:json_object",
    ): "the handler travels in archives without the emulator, and the two raise errors of their own",
    (
        "cohost/forecast/fleet.py:read_loads",
        "cohost/forecast/plan/profiles.py:load_profiles",
    ): "two files of YAML, each read into its own model with its own errors",
    (
        "stacks/cpu_onnx_stack.py:CpuOnnxStack.__init__",
        "stacks/lmi_cohost_stack.py:LmiCohostStack.__init__",
    ): "a stack is a list of its parts; these two have three parts alike",
}


class Run(NamedTuple):
    """Consecutive statements of one function; `name` is `file:function`, `first` and `last` are line numbers."""

    name: str
    first: int
    last: int

    def __str__(self) -> str:
        """Return the location of the statements in the form `file:first-last`."""
        return f"{self.name.partition(':')[0]}:{self.first}-{self.last}"


def main() -> int:
    """Print each duplicate that is not in EXCEPTIONS, and each outdated exception; return 1 if any is printed."""
    found = pairs(sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")))
    for names, (one, other) in sorted(found.items()):
        if names not in EXCEPTIONS:
            print(
                f"{one} and {other} are alike; fix: make one function of both, or add {names} to EXCEPTIONS with "
                "the reason"
            )
    gone = [names for names in EXCEPTIONS if names not in found]
    for names in gone:
        print(f"{names} are not alike any more; fix: remove the pair from EXCEPTIONS")
    return 1 if gone or found.keys() - EXCEPTIONS.keys() else 0


def pairs(paths: Iterable[Path]) -> dict[Pair, tuple[Run, Run]]:
    """For every two functions with equal runs of statements, return one pair of runs, keyed by the functions' names."""
    alike: dict[tuple[str, ...], set[Run]] = defaultdict(set)
    for path in paths:
        for function, name in _functions(ast.parse(path.read_text(encoding="utf-8")), str(path.relative_to(ROOT))):
            for shape, first, last in _runs(function):
                alike[shape].add(Run(name, first, last))
    found: dict[Pair, tuple[Run, Run]] = {}
    for shape in sorted(alike, key=len):
        for one, other in itertools.combinations(sorted(alike[shape]), 2):
            if one.name != other.name or one.last < other.first:
                found[one.name, other.name] = one, other
    return found


def _functions(node: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
    for child in ast.iter_child_nodes(node):
        within = name
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            within = f"{name}{'.' if ':' in name else ':'}{child.name}"
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, within
        yield from _functions(child, within)


def _runs(function: ast.AST) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """For each statement, yield shape and lines of the shortest run that starts there and has LEAST_NODES nodes."""
    for block in _blocks(function):
        shapes = [tuple(_shape(statement)) for statement in block]
        for start in range(len(block)):
            shape: tuple[str, ...] = ()
            for end in range(start, len(block)):
                shape += shapes[end]
                if len(shape) >= LEAST_NODES and end > start:
                    yield shape, block[start].lineno, block[end].end_lineno or 0
                    break


def _blocks(node: ast.AST) -> Iterator[Sequence[ast.stmt]]:
    """Yield the lists of statements of a function, except those of functions and classes defined inside it."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        block = [inner for inner in getattr(node, field, ()) if isinstance(inner, ast.stmt) and _counts(inner)]
        if block:
            yield block
        for inner in getattr(node, field, ()):
            if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _blocks(inner)


def _counts(statement: ast.stmt) -> bool:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return not is_text and not isinstance(statement, ast.Import | ast.ImportFrom)


def _shape(node: ast.AST) -> Iterator[str]:
    """Yield the types of a node and its descendants, with attribute names and numbers, not variables and strings."""
    kind = type(node).__name__
    match node:
        case ast.expr_context():
            return
        case ast.Name() | ast.JoinedStr() | ast.Constant(value=str()):
            yield kind
            return
        case ast.Attribute(attr=name) | ast.keyword(arg=name):
            yield f"{kind} {name}"
        case ast.Constant(value=value):
            yield f"{kind} {value!r}"
        case _:
            yield kind
    for child in ast.iter_child_nodes(node):
        yield from _shape(child)


if __name__ == "__main__":
    sys.exit(main())
