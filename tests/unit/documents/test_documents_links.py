"""Every link of README and docs to a file or an anchor has a target; links to the web are not checked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from fakes.pages import PROJECT, headings, links, pages

if TYPE_CHECKING:
    from pathlib import Path

WEB = {"http", "https", "mailto"}


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    found: set[str] = set()
    for text in headings(page):
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        copies = sum(1 for one in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", one))
        found.add(f"{slug}-{copies}" if slug in found else slug)
    return found


def broken(page: Path) -> list[str]:
    """Return the links of a page without a target, with their lines."""
    wrong = []
    for line, target in links(page):
        parts = urlsplit(target)
        if parts.scheme in WEB:
            continue
        file = page if not parts.path else (page.parent / parts.path).resolve()
        if not file.exists():
            wrong.append(f"{line}: {target}: there is no such file")
        elif parts.fragment and parts.fragment not in anchors(file):
            wrong.append(f"{line}: {target}: no such heading; there are {', '.join(sorted(anchors(file)))}")
    return wrong


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    """A reader who follows a link arrives at the file and at the heading."""
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    """A link to a missing file or heading is found with its line."""
    page = tmp_path / "page.md"
    page.write_text("# One `two`, three\n## Two\n## Two\n[a](gone.md)\n\n[b](#nope) [c](#one-two-three) [d](#two-1)\n")

    assert [found.partition(": there")[0].partition(": no")[0] for found in broken(page)] == ["4: gone.md", "6: #nope"]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_named_files_are_there(page: Path) -> None:
    """A page names no module or folder of the product that was moved away."""
    named = re.findall(
        r"`((?:cohost|constructs_lib|load_tests|local_aws|stacks|tests|tools|docs)/[\w/-]+\.\w+)`", page.read_text()
    )
    assert [name for name in named if not (PROJECT / name).exists()] == []


def test_links_to_the_web_are_whole_and_encrypted() -> None:
    """Each link to the web has a host and https; the page itself is not requested."""
    for page in pages():
        for line, target in links(page):
            parts = urlsplit(target)
            if parts.scheme in WEB:
                assert (parts.scheme, bool(parts.netloc)) == ("https", True), f"{page.name}:{line}: {target}"
