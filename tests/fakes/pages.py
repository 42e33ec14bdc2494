"""The pages of the documentation for tests: code blocks with their marks, links and headings."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from markdown_it import MarkdownIt

from cohost.catalog.models import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

PROJECT: Final = Path(__file__).parents[2]
DOCS: Final = PROJECT / "docs"
MARK: Final = re.compile(r"<!-- (?P<kind>\w+)(?: (?P<name>[\w./-]+))? -->")
KINDS: Final = ("run", "account", "make", "shown", "file", "catalog")

_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: its first line, language (may be empty), text, and the mark in the line above.

    `kind` is None without a mark; `name` is the file of the mark `file`.
    """

    page: Path
    line: int
    language: str
    text: str
    kind: str | None
    name: str | None

    def __str__(self) -> str:
        """Return the path and line of the block, as editors open it."""
        place = self.page.relative_to(PROJECT) if self.page.is_relative_to(PROJECT) else self.page
        return f"{place}:{self.line}"


def pages() -> list[Path]:
    """README in all languages, that of the emulator, CONTRIBUTING, and every page below docs."""
    return sorted(
        [*PROJECT.glob("README*.md"), PROJECT / "CONTRIBUTING.md", PROJECT / "local_aws/README.md", *DOCS.rglob("*.md")]
    )


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    found = []
    before: Token | None = None
    for token in _MARKDOWN.parse(page.read_text(encoding="utf-8")):
        if token.type == "fence":
            mark = MARK.fullmatch(before.content.strip()) if before and before.type == "html_block" else None
            line = (token.map or [0])[0] + 1
            kind, name = (mark["kind"], mark["name"]) if mark else (None, None)
            language = token.info.strip()
            found.append(Block(page=page, line=line, language=language, text=token.content, kind=kind, name=name))
        before = token
    return found


def all_blocks() -> list[Block]:
    """The fenced blocks of all pages."""
    return [block for page in pages() for block in blocks(page)]


def code_spans(page: Path) -> Iterator[tuple[int, str]]:
    """The line (of the paragraph) and the text of each `code` in running text and tables."""
    for line, token in _inline(page):
        if token.type == "code_inline":
            yield line, token.content


def links(page: Path) -> Iterator[tuple[int, str]]:
    """The line (of the paragraph) and the target of each link and image."""
    for line, token in _inline(page):
        if token.type in {"link_open", "image"}:
            yield line, str(token.attrGet("href") or token.attrGet("src"))


def headings(page: Path) -> list[str]:
    """Return the text of each heading, without marks of code and emphasis."""
    tokens = _MARKDOWN.parse(page.read_text(encoding="utf-8"))
    return [
        "".join(part.content for part in after.children or ())
        for token, after in itertools.pairwise(tokens)
        if token.type == "heading_open"
    ]


def _inline(page: Path) -> Iterator[tuple[int, Token]]:
    for token in _MARKDOWN.parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            yield (token.map or [0])[0] + 1, child


def is_catalog_fragment(data: object) -> bool:
    """Return True if a YAML block is part of a catalog, because all of its keys are keys of a catalog."""
    keys = {field.alias or name for name, field in Catalog.model_fields.items()}
    return isinstance(data, dict) and bool(data) and data.keys() <= keys


def merged(catalog: dict[str, Any], fragment: dict[str, Any]) -> dict[str, Any]:
    """Return a catalog with a fragment inserted: existing keys are changed, missing keys added."""
    result = dict(catalog)
    for key, value in fragment.items():
        inner = result.get(key)
        result[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return result


def write_into(file: Path, fragment: str) -> None:
    """Put a fragment into a catalog's file."""
    catalog = merged(yaml.safe_load(file.read_text(encoding="utf-8")), yaml.safe_load(fragment))
    file.write_text(yaml.safe_dump(catalog, sort_keys=False, allow_unicode=True), encoding="utf-8")
