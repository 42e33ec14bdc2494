"""Conversion of pydantic's validation errors to faults of a catalog: field, problem, allowed values, fix."""

from __future__ import annotations

import difflib
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel

from cohost.errors import CatalogError, InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from pydantic import ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

Location = tuple[str | int, ...]

SHOWN_CHARACTERS = 80


def faults_of(error: ValidationError, root: type[BaseModel], fields: Container[str]) -> Iterator[CatalogError]:
    """Yield one catalog fault per error in a ValidationError, in pydantic's order.

    Args:
        error: the ValidationError.
        root: the pydantic class of the validated data.
        fields: the dotted paths of all values that the catalog file states.
    """
    seen: set[Location] = set()
    for detail in error.errors(include_url=False):
        # `[key]` in a location is pydantic's mark for a mapping's key; the catalog file has no such level.
        location = tuple(part for part in detail["loc"] if part != "[key]")
        if detail["type"] != "missing" and _dotted(location) not in fields:
            # The catalog file has no level for the members of a union either; the errors of all members are about the
            # same value.
            location = location[:-1]
            if location in seen:
                continue
        seen.add(location)
        yield _fault(detail, location, root)


def _dotted(location: Location) -> str:
    return ".".join(map(str, location))


def _fault(detail: ErrorDetails, location: Location, root: type[BaseModel]) -> CatalogError:
    field, kind, got = _dotted(location) or "the file", detail["type"], _shown(detail["input"])
    refusal = detail.get("ctx", {}).get("error")
    if isinstance(refusal, InvalidValueError):
        return CatalogError(
            code=refusal.code, field=field, problem=refusal.problem, allowed=refusal.allowed, fix=refusal.fix
        )
    if kind == "extra_forbidden":
        return _unknown_key(field, str(location[-1]), _model_at(root, location[:-1]))
    allowed = _allowed(root, location)
    if kind == "missing":
        return CatalogError("field-missing", field, "is missing", allowed=allowed, fix="add it")
    if kind == "too_short":
        return CatalogError("value-empty", field, "is empty", allowed=allowed, fix="add an entry")
    if kind in {"model_type", "dict_type", "model_attributes_type"}:
        fix = "write `key: value` lines below it"
        return CatalogError("not-a-mapping", field, f"{got} is not a mapping", allowed=allowed, fix=fix)
    return CatalogError("value-not-allowed", field, f"got {got}", allowed=allowed, fix=_fix(kind, detail))


def _fix(kind: str, detail: ErrorDetails) -> str:
    if kind == "string_type":
        return "put the value in quotes"
    if kind == "int_type" and isinstance(detail["input"], str):
        return "write a whole number without quotes"
    return "change the value to an allowed one"


def _unknown_key(field: str, key: str, model: type[BaseModel] | None) -> CatalogError:
    known = [info.alias or name for name, info in model.model_fields.items()] if model else []
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    fix = f"write {close[0]!r}" if close else "take it out"
    return CatalogError("key-unknown", field, "is not a key", allowed=", ".join(known), fix=fix)


def _allowed(root: type[BaseModel], location: Location) -> str:
    parent = _model_at(root, location[:-1])
    info = _field(parent, location[-1]) if parent and location else None
    if info is not None and info.description:
        return info.description
    model = _model_at(root, location)
    if model is not None:
        return ", ".join(field.alias or name for name, field in model.model_fields.items())
    # The location is an item of a mapping or list, where the allowed values are described.
    return _allowed(root, location[:-1]) if location else "a mapping"


def _model_at(root: type[BaseModel], location: Location) -> type[BaseModel] | None:
    """Return the pydantic class for the value at a location; None for a plain value such as a number."""
    current: Any = root
    for part in location:
        if _is_model(current):
            info = _field(current, part)
            current = info.annotation if info else None
        else:
            # The part is an item of a mapping: the item's type is the last argument of dict[str, …].
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
