"""Keep the tables of catalog.md equal to the catalog's Pydantic classes: keys, defaults and allowed values.

`python docs/catalog_tables.py` rewrites the columns "default" and "allowed"; the description of a key is written by
hand and kept. A test checks that the page is complete and equal to the classes.
"""

from __future__ import annotations

import re
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from cohost.catalog.models import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

PAGE: Final = Path(__file__).parent / "catalog.md"
HEADER: Final = "| key | default | allowed | what it does |\n| --- | --- | --- | --- |\n"

_SECTION: Final = re.compile(r"^#+ `(?P<name>\w+)`.*?$(?P<body>.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
_TABLE: Final = re.compile(r"^\| key \|.*\n\|[ -|]+\n(?P<rows>(?:\|.*\n)*)", re.MULTILINE)


class MissingRowError(Exception):
    """A key has no row in catalog.md, a row has no key, or a section has no table; the message says which one."""


def refresh(text: str) -> str:
    """Return the text of catalog.md with the columns "default" and "allowed" written from the Pydantic classes.

    Raises:
        MissingRowError: the page and the classes do not have the same sections and keys.
    """
    models = dict(_sections(Catalog))
    written = {found["name"] for found in _SECTION.finditer(text)}
    for name in models.keys() - written:
        # A part with few keys may be described in the row of its own name.
        if unnamed := [key for key in _keys(models[name]) if f"`{key}`" not in text]:
            raise MissingRowError(f"catalog.md has no section for {name}, and does not name {', '.join(unnamed)}")

    def renew(found: re.Match[str]) -> str:
        if (model := models.get(found["name"])) is None:
            return found[0]
        table = _TABLE.search(found[0])
        if table is None:
            raise MissingRowError(f"catalog.md: section {found['name']} has no table of keys")
        return found[0][: table.start()] + _table(found["name"], model, table["rows"]) + found[0][table.end() :]

    return _SECTION.sub(renew, text)


def _sections(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the name and the Pydantic class of each part of a catalog file that has keys of its own."""
    for name, field in model.model_fields.items():
        for inner in _models_in(field.annotation):
            yield field.alias or name, inner
            yield from _sections(inner)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:  # any annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)


def _table(section: str, model: type[BaseModel], rows: str) -> str:
    by_key = {cells[0].strip("`"): cells for cells in map(_cells, rows.splitlines())}
    fields = _keys(model)
    if wrong := by_key.keys() ^ fields.keys():
        raise MissingRowError(f"catalog.md: section {section}: rows and keys differ in {', '.join(sorted(wrong))}")
    return HEADER + "".join(
        f"| `{key}` | {_default(field, by_key[key][1])} | {_allowed(field)} | {by_key[key][-1]} |\n"
        for key, field in fields.items()
    )


def _keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def _default(field: FieldInfo, written: str) -> str:
    """Return the table cell of a key's default; if the default is not one plain value, keep the cell written by hand.

    If the default differs by topology, the cell written by hand has the usual default, a semicolon and the other
    defaults.
    """
    if field.is_required():
        # A key may be required in most catalogs and known in the others, which the page states by hand too.
        return written if written.startswith("required") else "required"
    match field.default:
        case bool(value):
            default = str(value).lower()
        case str(value):
            default = f"`{value}`"
        case int(value) | float(value):
            default = f"{value:g}"
        case _:
            return written
    return written if written.startswith(f"{default};") else default


def _allowed(field: FieldInfo) -> str:
    return (field.description or "").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(refresh(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
