"""CloudWatch Logs' filter patterns for space-delimited fields, and the values that metric filters read from log lines.

A pattern such as `[..., mark = "word", name, count]` names the last fields of a line; without the ellipsis it names all
fields. Text in quotes or brackets is one field (AWS: "Filter pattern syntax for metric filters"). Patterns for JSON and
for search terms are not supported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANY: Final = "..."
_FIELD = re.compile(r"""(?P<name>[A-Za-z_]\w*)(?:\s*(?P<sign>!?=)\s*(?P<value>"[^"]*"|[^\s"=<>!]+))?""")
_WORD = re.compile(r'\[[^\]]*\]|"[^"]*"|\S+')


@dataclass(frozen=True, kw_only=True)
class FieldPattern:
    """A parsed pattern: its fields in order; `open` is True if further fields may stand before them."""

    names: tuple[str, ...]
    conditions: tuple[tuple[str, str, str], ...]
    open: bool

    def match(self, line: str) -> dict[str, str] | None:
        """Return the line's fields by name; None if the line does not match."""
        words = _WORD.findall(line)
        if len(words) < len(self.names) or (len(words) > len(self.names) and not self.open):
            return None
        fields = dict(zip(self.names, words[len(words) - len(self.names) :], strict=True))
        holds = all(_matches(fields[name], value) is (sign == "=") for name, sign, value in self.conditions)
        return fields if holds else None


def parse_pattern(text: str) -> FieldPattern:
    """Return a parsed pattern.

    Raises:
        ValueError: the pattern is of another kind, or has an operator or an ellipsis that is not evaluated here.
    """
    stripped = text.strip()
    if not (stripped.startswith("[") and stripped.endswith("]")):
        msg = f"{text!r} is not a pattern of space-delimited fields, the only kind that this emulation evaluates"
        raise ValueError(msg)
    parts = [part.strip() for part in stripped[1:-1].split(",")]
    leading = parts[0] == _ANY
    found = [_FIELD.fullmatch(part) for part in parts[leading:]]
    if None in found or not found:
        msg = f"{text!r} has a field that is not a name, name = text or name != text after an ellipsis at the start"
        raise ValueError(msg)
    fields = [field for field in found if field is not None]
    return FieldPattern(
        names=tuple(field["name"] for field in fields),
        conditions=tuple(
            (field["name"], field["sign"], field["value"].strip('"')) for field in fields if field["sign"]
        ),
        open=leading,
    )


def datum_of(pattern: FieldPattern, transformation: Mapping[str, Any], line: str) -> dict[str, Any] | None:
    """Return the PutMetricData entry that a metric filter makes of a line; None if the line does not match.

    As on CloudWatch, a value that is not a number makes no entry.
    """
    fields = pattern.match(line)
    if fields is None:
        return None
    try:
        value = float(_resolved(transformation["metricValue"], fields))
    except ValueError:
        return None
    dimensions = [
        {"Name": name, "Value": _resolved(text, fields)} for name, text in transformation.get("dimensions", {}).items()
    ]
    return {
        "MetricName": transformation["metricName"],
        "Value": value,
        "Unit": transformation.get("unit", "None"),
        "Dimensions": dimensions,
    }


def _resolved(text: str, fields: Mapping[str, str]) -> str:
    return fields.get(text[1:], "") if text.startswith("$") else text


def _matches(word: str, wanted: str) -> bool:
    """Return True if a field equals the wanted text, where `*` in the wanted text matches any text."""
    return re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), word) is not None
