"""The pages and columns that are written from the source are as the source is now, and the site builds."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
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
    """docs/catalog.md has every key of the catalog with the code's default and allowed values."""
    text = catalog_tables.PAGE.read_text(encoding="utf-8")

    assert catalog_tables.refresh(text) == text, FIX


def test_a_key_without_a_row_and_a_row_without_a_key_are_refused() -> None:
    """A key of the catalog without a row in its page, and a row without a key, are errors."""
    text = catalog_tables.PAGE.read_text(encoding="utf-8")
    row = next(line for line in text.splitlines(keepends=True) if line.startswith("| `copy_count` |"))

    for wrong in (text.replace(row, "", 1), text.replace(row, row + row.replace("copy_count", "copies"), 1)):
        with pytest.raises(catalog_tables.MissingRowError, match="section endpoint"):
            catalog_tables.refresh(wrong)


def test_error_texts_are_those_of_the_source() -> None:
    """docs/errors.md has the text of every error in the source."""
    assert error_texts.PAGE.read_text(encoding="utf-8") == error_texts.page(error_texts.collect()), FIX


def test_every_error_has_a_code() -> None:
    """Scripts that read `--json` find a code in every error."""
    assert error_texts.uncoded() == []


def test_a_code_is_of_one_class_and_reads_as_one() -> None:
    """An error code has two to four words and belongs to one class."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for text in error_texts.collect():
        # A field's fault becomes one of the faults of a CatalogError.
        kinds[text.code].add("CatalogError" if text.kind == error_texts.FIELD_FAULT else text.kind)

    assert [code for code in kinds if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+){1,3}", code)] == []
    assert {code: found for code, found in kinds.items() if len(found) > 1} == {}


def test_texts_of_every_form_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Error texts in f-strings, joined texts and field faults are found, and one without a code is rejected."""
    (tmp_path / "cohost").mkdir()
    (tmp_path / "cohost" / "errors.py").write_text(
        "class CodedError(Exception): ...\n"
        "class LocalError(CodedError): ...\n"
        "class ManyError(CodedError):\n    def __init__(self, faults): ...\n"
        'LocalError("port-taken", "--port", f"{port} is " + "in use", fix="choose another")\n'
        'refuse("not-a-number", f"got {value!r}")\n'
        "ManyError(faults)\n"
        'LocalError("only a text")\n'
    )
    monkeypatch.setattr(error_texts, "ROOT", tmp_path)

    assert [(text.kind, text.code, text.words) for text in error_texts.collect()] == [
        ("LocalError", "port-taken", "--port: {port} is in use; fix: choose another"),
        ("refuse", "not-a-number", "got {value}"),
    ]
    assert error_texts.uncoded() == ["cohost/errors.py:8"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """The site has all pages in its navigation, and each link and anchor between pages has a target."""
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
