"""A writer and reader of Java properties text by the rules of java.util.Properties (Java SE 17 API, method `load`).

DJL Serving 0.36.0 passes serving.properties to `load` as a byte stream, which `load` decodes as ISO-8859-1. The
function `dumps` writes ASCII only, so the encoding of serving.properties does not matter.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BLANKS = " \t\f"
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_LETTERS = {"\t": "t", "\n": "n", "\f": "f", "\r": "r"}
_MEANINGS = {letter: character for character, letter in _LETTERS.items()}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_LAST_ASCII = 0x7E
_FIRST_ASTRAL = 0x10000


def dumps(properties: Mapping[str, str]) -> str:
    """Return properties as ASCII text: `key=value` lines in the given order, each ended by a line feed.

    `dumps` escapes only characters that Java would read differently. A space at the end of a value is written as an
    escape too, so that no editor removes it and no reader overlooks it.

    Raises:
        ArtifactError: a key is empty, or a key or value has half of a surrogate pair, which is not a character.
    """
    return "".join(f"{_written_key(key)}={_written_value(key, value)}\n" for key, value in properties.items())


def loads(text: str) -> dict[str, str]:
    """Return the properties in a properties text; the last value of a repeated key counts, as in Java.

    Raises:
        ArtifactError: a Unicode escape is not followed by four hexadecimal digits.
    """
    return dict(entries(text))


def entries(text: str) -> list[tuple[str, str]]:
    """Return the (key, value) pairs of a properties text in the text's order, repeated keys included.

    Raises:
        ArtifactError: a Unicode escape is not followed by four hexadecimal digits.
    """
    return [_entry(line) for line in _logical_lines(text)]


def _written_key(key: str) -> str:
    if not key:
        raise ArtifactError(
            "property-key",
            "property key",
            "is empty",
            allowed="at least one character",
            fix="name it or remove the line",
        )
    written = "".join(f"\\{c}" if c in " =:" else _written_character(key, c) for c in key)
    # Java reads a line that starts with # or ! as a comment.
    return f"\\{written}" if written[0] in "#!" else written


def _written_value(key: str, value: str) -> str:
    body = value.strip(" ")
    if not body:
        return "\\u0020" * len(value)
    leading = len(value) - len(value.lstrip(" "))
    trailing = len(value) - leading - len(body)
    return "\\ " * leading + "".join(_written_character(key, c) for c in body) + "\\u0020" * trailing


def _written_character(key: str, character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character in _LETTERS:
        return f"\\{_LETTERS[character]}"
    code = ord(character)
    if " " <= character <= chr(_LAST_ASCII):
        return character
    if code < _FIRST_ASTRAL:
        return _written_unit(key, code)
    offset = code - _FIRST_ASTRAL
    return f"\\u{0xD800 + (offset >> 10):04X}\\u{0xDC00 + (offset & 0x3FF):04X}"


def _written_unit(key: str, code: int) -> str:
    if 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 - the surrogates of Unicode
        raise ArtifactError(
            "property-surrogate",
            f"property {key!a}",
            f"holds U+{code:04X}, half of a surrogate pair",
            allowed="text",
            fix="remove that character",
        )
    return f"\\u{code:04X}"


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text that hold a property; lines continued with a backslash are joined."""
    line = ""
    continued = False
    # Java checks for the end of the text before it joins lines: a backslash right before the end continues nothing.
    for natural in _LINE_ENDS.split(text[:-1] if text.endswith(("\n", "\r")) else text):
        piece = natural.lstrip(_BLANKS)
        # Java recognises a comment sign until the line has its first character, also after a lone backslash.
        if not line and (not piece or piece[0] in "#!"):
            continued = False
            continue
        continued = _ends_in_odd_backslashes(piece)
        line += piece[:-1] if continued else piece
        if not continued:
            yield line
            line = ""
    if continued:
        yield line


def _ends_in_odd_backslashes(piece: str) -> bool:
    return (len(piece) - len(piece.rstrip("\\"))) % 2 == 1


def _entry(line: str) -> tuple[str, str]:
    end = _key_end(line)
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _read(line[:end]), _read(rest)


def _key_end(line: str) -> int:
    escaped = False
    for position, character in enumerate(line):
        if not escaped and (character in "=:" or character in _BLANKS):
            return position
        escaped = character == "\\" and not escaped
    return len(line)


def _read(text: str) -> str:
    characters = _ESCAPE.sub(_meaning, text)
    # Java's characters are UTF-16 code units: two escapes can form one character.
    return characters.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _meaning(escape: re.Match[str]) -> str:
    digits, character = escape.groups()
    if digits is not None:
        return chr(int(digits, 16))
    if character == "u":
        raise ArtifactError(
            "property-escape",
            "property text",
            f"{escape.string!a} holds \\u without four hexadecimal digits, and Java refuses the file",
            fix="write \\\\u for a backslash and u, or complete the digits",
        )
    return _MEANINGS.get(character, character)
