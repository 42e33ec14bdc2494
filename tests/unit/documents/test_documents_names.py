"""The outputs of stacks and the keys of the catalog that pages name exist."""

from __future__ import annotations

import functools
import itertools
import re
import typing
from typing import TYPE_CHECKING, Any

import pytest
from fakes.pages import PROJECT, code_spans, pages
from pydantic import BaseModel

from cohost.catalog.models import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@functools.cache
def outputs() -> frozenset[str]:
    """Return the texts in the source that may be names of outputs."""
    files = (path for folder in ("cohost", "constructs_lib", "stacks") for path in (PROJECT / folder).rglob("*.py"))
    return frozenset(name for path in files for name in re.findall(r'"([A-Z][A-Za-z]+)"', path.read_text("utf-8")))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_outputs_that_a_page_names_exist(page: Path) -> None:
    """Each output that a page names is an output of the stack."""
    named = re.findall(r"\boutputs?\s\(?`([A-Za-z]+)`", page.read_text(encoding="utf-8"))

    assert set(named) <= outputs()


def _keys(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _below(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _below(argument)


def sections() -> dict[str, list[type[BaseModel]]]:
    """Return the sections of the catalog by name, including sections of a model."""
    found: dict[str, list[type[BaseModel]]] = {}
    waiting: list[type[BaseModel]] = [Catalog]
    while waiting:
        for key, annotation in _keys(waiting.pop()).items():
            inner = list(_below(annotation))
            if inner and key not in found:
                found[key] = inner
                waiting += inner
    return found


def unknown_keys(page: Path) -> list[str]:
    """Return each `section.key` of a page whose section exists in the catalog but not the key."""
    parts = sections()
    wrong = []
    for line, span in code_spans(page):
        name = span.partition(":")[0]
        path = name.split(".")
        if not re.fullmatch(r"[a-zA-Z_-]+(\.[a-zA-Z_-]+)+(?<!\.yaml)", name) or path[0] not in parts:
            continue
        for section, key in itertools.pairwise(path):
            if section in parts and not any(key in _keys(model) for model in parts[section]):
                wrong.append(f"{line}: {span}")
    return wrong


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_keys_of_the_catalog_that_a_page_names_exist(page: Path) -> None:
    """Each key such as `storage.keep_generations` in a page exists in the catalog."""
    assert unknown_keys(page) == []


def test_a_key_that_does_not_exist_is_found(tmp_path: Path) -> None:
    """A page with an unknown key of the catalog is found, also in a nested section."""
    page = tmp_path / "page.md"
    page.write_text("`storage.prefix` `storage.nope` `monitoring.alarms.nope: 1` `models.yaml` `gpu.minWorkers`\n")

    assert unknown_keys(page) == ["1: storage.nope", "1: monitoring.alarms.nope: 1"]
