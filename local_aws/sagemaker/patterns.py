r"""Java's regular expressions, as service models use them, in Python's dialect.

The services' models (botocore 1.44.8) use six things that Python's `re` lacks: pairs of UTF-16 escapes, the classes
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
_SURROGATES = r"\\uD[89ABab][0-9A-Fa-f]{2}\\uD[C-Fc-f][0-9A-Fa-f]{2}"
_PIECE = re.compile(rf"\\p\{{\w+\}}|{_SURROGATES}|\\u[0-9A-Fa-f]{{4}}|\\.|[\[\]]|.", re.DOTALL)
_PAIR = re.compile(_SURROGATES)


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
        elif _PAIR.fullmatch(piece):
            # Java's texts are UTF-16: two of its escapes are one character beyond the first 65,536.
            high, low = (int(part, 16) for part in piece[2:].split(r"\u"))
            out.append(f"\\U{(high - 0xD800) * 0x400 + low - 0xDC00 + 0x10000:08x}")
        else:
            out.append(r"\Z" if piece == r"\z" else piece)
    return re.compile("".join(out))
