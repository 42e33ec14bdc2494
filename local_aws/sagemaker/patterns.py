r"""Java's regular expressions, as service models use them, in Python's dialect.

The models of sagemaker and sagemaker-runtime (botocore 1.44.8) use five things that Python's `re` lacks: the classes
\p{L}, \p{Z}, \p{N}, \p{ASCII} and \p{Print}, and the anchor \z. \p{L} becomes \w, which lets the underscore and
digits pass as well; every pattern that uses it allows both anyway.
"""

from __future__ import annotations

import re
from functools import cache

_CLASSES = {
    r"\p{L}": r"\w",
    r"\p{Z}": r"\s",
    r"\p{N}": r"\d",
    r"\p{ASCII}": r"\x00-\x7f",
    r"\p{Print}": r"\x20-\x7e",
}
_PIECE = re.compile(r"\\p\{\w+\}|\\.|[\[\]]|.", re.DOTALL)


@cache
def matcher(pattern: str) -> re.Pattern[str]:
    """The compiled form of a service model's pattern; use it with `fullmatch`, as Java's `matches` does."""
    out: list[str] = []
    in_class = False
    for piece in _PIECE.findall(pattern):
        if piece in {"[", "]"}:
            in_class = piece == "["
            out.append(piece)
        elif piece in _CLASSES:
            out.append(_CLASSES[piece] if in_class else f"[{_CLASSES[piece]}]")
        else:
            out.append(r"\Z" if piece == r"\z" else piece)
    return re.compile("".join(out))
