"""Metric math of alarms: arithmetic on the ids of queries, FILL, IF, ABS, and MIN, MAX, SUM and AVG of several series.

CloudWatch user guide: "Using math expressions with CloudWatch metrics". A missing value makes the result missing,
except in FILL, MIN, MAX, SUM and AVG. A division by zero and an overflow make the result missing too (inferred).
"""

from __future__ import annotations

import ast
import math
import operator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Series = list[float | None]

_ARITHMETIC: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[float, float], bool]]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_OF_ALL: Final[dict[str, Callable[[list[float]], float]]] = {
    "MIN": min,
    "MAX": max,
    "SUM": sum,
    "AVG": lambda values: sum(values) / len(values),
}


class NotEmulated(ValueError):  # noqa: N818 - the emulator lacks the function; the caller made no error
    """The error for an alarm that the emulation cannot evaluate; the text names the unsupported part."""


def parse(expression: str) -> ast.expr:
    """Parse and check an expression.

    Raises:
        NotEmulated: the expression is not arithmetic, or uses an unsupported function.
    """
    # `^` has another meaning in Python, which uses `**` for powers.
    try:
        tree = ast.parse(expression.replace("^", "**"), mode="eval").body
    except SyntaxError as error:
        raise NotEmulated(f"{expression}: {error.msg}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and _is_known(node)):
            raise NotEmulated(f"{expression}: {ast.unparse(node)} is not part of this emulation's metric math")
        if not isinstance(node, _KNOWN):
            raise NotEmulated(f"{expression}: {type(node).__name__} is not part of this emulation's metric math")
    return tree


def values_of(tree: ast.expr, series: Mapping[str, Series], length: int) -> Series:
    """Evaluate a checked expression for each of `length` periods; `series` has each id's values.

    Raises:
        NotEmulated: the expression refers to an id that `series` lacks.
    """

    def work_out(part: ast.expr) -> Series:
        return values_of(part, series, length)

    match tree:
        case ast.Constant(value=int() | float() as number):
            return [float(number)] * length
        case ast.Name(id=name) if name in series:
            return series[name]
        case ast.UnaryOp(operand=operand):
            return [None if value is None else -value for value in work_out(operand)]
        case ast.Call():
            return _called(tree, work_out)
    return _calculated(tree, work_out)


def _calculated(tree: ast.expr, work_out: Callable[[ast.expr], Series]) -> Series:
    match tree:
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(_ARITHMETIC[type(op)], work_out(left), work_out(right))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _combined(_COMPARISONS[type(op)], work_out(left), work_out(right))
    raise NotEmulated(f"{ast.unparse(tree)} is not part of this emulation's metric math")


def _called(call: ast.Call, work_out: Callable[[ast.expr], Series]) -> Series:
    name, first = ast.unparse(call.func), call.args[0]
    if isinstance(first, ast.List):
        return _of_all(_OF_ALL[name], [work_out(part) for part in first.elts])
    return _OF_SERIES[name](*(work_out(argument) for argument in call.args))


def names_in(tree: ast.expr) -> list[str]:
    """Return the ids of queries and expressions that an expression uses."""
    functions = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in functions]


_KNOWN: Final = (
    ast.BinOp, ast.Call, ast.Compare, ast.Constant, ast.List, ast.Load, ast.Name, ast.UnaryOp, ast.USub,
    *_ARITHMETIC, *_COMPARISONS,
)  # fmt: skip


def _is_known(call: ast.Call) -> bool:
    name, count = getattr(call.func, "id", ""), len(call.args)
    if count == 1 and isinstance(call.args[0], ast.List):
        return name in _OF_ALL and bool(call.args[0].elts)
    return (name, count) in {("ABS", 1), ("FILL", 2), ("IF", 3)}


def _combined(function: Callable[[float, float], float], left: Series, right: Series) -> Series:
    def one(first: float | None, second: float | None) -> float | None:
        if first is None or second is None:
            return None
        try:
            value = function(first, second)
        except (ZeroDivisionError, OverflowError):
            return None
        # In Python a root of a negative number is a complex number.
        return None if isinstance(value, complex) or not math.isfinite(value) else float(value)

    return [one(first, second) for first, second in zip(left, right, strict=True)]


def _of_all(function: Callable[[list[float]], float], series: list[Series]) -> Series:
    """Apply a function to all series' values of each period, without the missing values."""
    columns = ([value for value in column if value is not None] for column in zip(*series, strict=True))
    return [function(column) if column else None for column in columns]


def _fill(series: Series, fillings: Series) -> Series:
    """Fill the missing values of a series; a series without any value is not changed."""
    if all(value is None for value in series):
        return series
    return [filling if value is None else value for value, filling in zip(series, fillings, strict=True)]


def _if(conditions: Series, first: Series, second: Series) -> Series:
    return [
        None if condition is None else (yes if condition else no)
        for condition, yes, no in zip(conditions, first, second, strict=True)
    ]


def _abs(series: Series) -> Series:
    return [None if value is None else abs(value) for value in series]


_OF_SERIES: Final[dict[str, Callable[..., Series]]] = {"FILL": _fill, "IF": _if, "ABS": _abs}
