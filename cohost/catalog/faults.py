"""Pydantic's errors as lines that a user can act on: location, problem, allowed values, fix."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pydantic import ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from cohost.catalog.yaml_source import Location, YamlSource

SHOWN_CHARACTERS = 80


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault of a file: its line, the path of the value, the problem and the fix."""

    line: int
    location: Location
    text: str

    @classmethod
    def at(cls, location: Location, text: str, source: YamlSource) -> Fault:
        """Return a fault on the line of its value in a file."""
        return cls(line=source.line_of(location), location=location, text=text)

    def render(self, path: Path) -> str:
        """Return the fault as `file:line: field: text`."""
        field = ".".join(str(part) for part in self.location) or "the file"
        return f"{path}:{self.line}: {field}: {self.text}"


def faults_of(error: ValidationError, root: type[BaseModel], source: YamlSource) -> Iterator[Fault]:
    """Yield one fault per error, in pydantic's order; `root` is the model that was validated against."""
    seen: set[Location] = set()
    for detail in error.errors(include_url=False):
        # `[key]` is pydantic's mark for a mapping's key; the file has no such level.
        location = tuple(part for part in detail["loc"] if part != "[key]")
        if detail["type"] != "missing" and location not in source.lines:
            # The file has no level for the members of a union either; the errors of all members are about the same
            # value.
            location = location[:-1]
            if location in seen:
                continue
        seen.add(location)
        yield Fault.at(location, _text(detail, location, root), source)


def _text(detail: ErrorDetails, location: Location, root: type[BaseModel]) -> str:
    kind, got = detail["type"], _shown(detail["input"])
    if kind == "extra_forbidden":
        return _unknown_key(str(location[-1]), _model_at(root, location[:-1]))
    allowed = _allowed(root, location)
    if kind == "missing":
        return f"is missing; allowed: {allowed}; fix: add it"
    if kind == "value_error":
        return detail["msg"].removeprefix("Value error, ")
    if kind == "too_short":
        return f"is empty; allowed: {allowed}; fix: add an entry"
    if kind in {"model_type", "dict_type", "model_attributes_type"}:
        return f"{got} is not a mapping; allowed: {allowed}; fix: write `key: value` lines below it"
    return f"{got} is not allowed; allowed: {allowed}; fix: {_fix(kind, detail)}"


def _fix(kind: str, detail: ErrorDetails) -> str:
    if kind == "string_type":
        return "put the value in quotes"
    if kind == "int_type" and isinstance(detail["input"], str):
        return "write a whole number without quotes"
    return "change the value to what is allowed"


def _unknown_key(key: str, model: type[BaseModel] | None) -> str:
    known = [info.alias or name for name, info in model.model_fields.items()] if model else []
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else "take it out"
    return f"unknown key; allowed: {', '.join(known)}; fix: {hint}"


def _allowed(root: type[BaseModel], location: Location) -> str:
    parent = _model_at(root, location[:-1])
    info = _field(parent, location[-1]) if parent and location else None
    if info is not None and info.description:
        return info.description
    model = _model_at(root, location)
    if model is not None:
        return ", ".join(field.alias or name for name, field in model.model_fields.items())
    # An item of a mapping or list: the allowed values are described at the mapping or list itself.
    return _allowed(root, location[:-1]) if location else "a mapping"


def _model_at(root: type[BaseModel], location: Location) -> type[BaseModel] | None:
    """Return the settings class that the value at this location is read into; None for plain values."""
    current: Any = root
    for part in location:
        if _is_model(current):
            info = _field(current, part)
            current = info.annotation if info else None
        else:
            # An item of a mapping: its type is the last argument of dict[str, …].
            current = get_args(current)[-1] if get_args(current) else None
        if get_origin(current) in {Union, UnionType}:
            current = next((arg for arg in get_args(current) if _is_model(arg)), None)
    return current if _is_model(current) else None


def _is_model(candidate: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)


def _field(model: type[BaseModel], key: str | int) -> FieldInfo | None:
    return next((info for name, info in model.model_fields.items() if (info.alias or name) == key), None)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
