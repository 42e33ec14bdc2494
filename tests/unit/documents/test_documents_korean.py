"""README.ko.md says what README.md says: the same sections, blocks, tables and links, in the same order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s*(?<![\w$])#\s.*$", re.MULTILINE)
ONLY_IN_KOREAN = {"README.md"}
"""The way back to the English page."""


@pytest.fixture(scope="module")
def pages() -> tuple[str, str]:
    """The English and the Korean page."""
    return (ROOT / "README.md").read_text(encoding="utf-8"), (ROOT / "README.ko.md").read_text(encoding="utf-8")


def prose(page: str) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", page)


def test_headings_have_the_same_levels_in_the_same_order(pages: tuple[str, str]) -> None:
    """A section that is added to one page is missed in the other."""
    english, korean = ([len(found) for found in re.findall(r"^(#+) ", prose(page), re.MULTILINE)] for page in pages)
    assert korean == english
    assert len(english) > 3


def test_code_blocks_are_the_same_but_for_their_comments(pages: tuple[str, str]) -> None:
    """What is typed does not depend on the language that it is explained in."""
    english, korean = (
        [(found["language"], COMMENT.sub("", found["code"])) for found in FENCE.finditer(page)] for page in pages
    )
    assert korean == english
    marks = [re.findall(r"<!-- (\w+) -->", page) for page in pages]
    assert marks[0] == marks[1]


def test_tables_and_lists_have_the_same_rows(pages: tuple[str, str]) -> None:
    """A row or an item that is added to one page is missed in the other."""
    rows = [re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE) for page in pages]
    assert rows[0] == rows[1]
    items = [re.findall(r"^ *(-|\d\.) ", prose(page), re.MULTILINE) for page in pages]
    assert items[0] == items[1]


def test_links_lead_to_the_same_places(pages: tuple[str, str]) -> None:
    """A page that one README names is named by the other, as often; word order may differ."""
    english, korean = (sorted(re.findall(r"\]\(([^)\s]+)\)", prose(page))) for page in pages)
    assert [link for link in korean if link not in ONLY_IN_KOREAN] == [
        link for link in english if link != "README.ko.md"
    ]


def test_the_korean_page_is_korean(pages: tuple[str, str]) -> None:
    """No paragraph was left in English: each has Hangul in it."""
    paragraphs = [text for text in re.split(r"\n\s*\n", prose(pages[1])) if re.search(r"\w{3}", text)]
    left = [text for text in paragraphs if not re.search("[가-힣]", text) and not text.startswith(("# lmi", "<!--"))]
    assert left == []
