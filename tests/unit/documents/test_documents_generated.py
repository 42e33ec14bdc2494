"""The pages and columns that are written from the source are as the source is now, and the site builds."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest
from fakes.pages import DOCS, PROJECT
from mkdocs.commands.build import build
from mkdocs.config import load_config

sys.path.insert(0, str(DOCS))
import catalog_tables
import error_texts

if TYPE_CHECKING:
    from pathlib import Path

FIX = "run `make docs`"


def test_tables_of_the_catalog_are_as_the_models_say() -> None:
    """Every key of the catalog stands on its page, with the default and the values that the code takes."""
    text = catalog_tables.PAGE.read_text(encoding="utf-8")

    assert catalog_tables.refresh(text) == text, FIX


def test_a_key_without_a_row_and_a_row_without_a_key_are_refused() -> None:
    """A new key cannot be left undocumented, and a removed one cannot stay."""
    text = catalog_tables.PAGE.read_text(encoding="utf-8")
    row = next(line for line in text.splitlines(keepends=True) if line.startswith("| `copy_count` |"))

    for wrong in (text.replace(row, "", 1), text.replace(row, row + row.replace("copy_count", "copies"), 1)):
        with pytest.raises(catalog_tables.MissingRowError, match="section endpoint"):
            catalog_tables.refresh(wrong)


def test_error_texts_are_those_of_the_source() -> None:
    """Whoever searches the page for the words of an error finds it."""
    assert error_texts.PAGE.read_text(encoding="utf-8") == error_texts.page(error_texts.collect()), FIX


def test_every_kind_of_error_is_on_the_page() -> None:
    """The reader of the source sees f-strings, lists of faults and texts that are put together first."""
    words = {text.kind: text.words for text in error_texts.collect()}

    assert {"CatalogError", "RoutingError", "LocalError", "ArtifactError", "ValueError"} <= words.keys()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """All pages are in the navigation, and every link and anchor between them leads somewhere."""
    config = load_config(str(PROJECT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True)

    build(config)

    page = (tmp_path / "site" / "operations.html").read_text(encoding="utf-8")
    assert "<code>" in page
    named = [str(file) for section in config["nav"] for file in _files(section)]
    assert len(named) == len(set(named)), "a page stands in the navigation twice"
    assert "&lt;!--" not in page, "a mark of a code block shows"
    fetched = re.findall(r'(?: src|stylesheet"? href)="?(https?:[^" >]+)', page)
    assert not fetched, "the site works without a network"


def _files(entry: object) -> list[object]:
    """The files that an entry of the navigation names, however deep."""
    parts = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else [entry]
    return [entry] if isinstance(entry, str) else [file for part in parts for file in _files(part)]
