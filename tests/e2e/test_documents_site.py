"""The documentation's site in a real browser, as wide as a desk and as a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.pages import PROJECT
from mkdocs.commands.build import build
from mkdocs.config import load_config

if TYPE_CHECKING:
    from pathlib import Path

    from fakes.browser import Browser

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

LOOKED_AT = ("index", "catalog", "scaling", "troubleshooting", "operations", "choosing")
# What is too wide for the window and cannot be scrolled into it by itself.
TOO_WIDE = """[...document.querySelectorAll('article *')].filter(element => {
  for (let box = element; box.tagName !== 'ARTICLE'; box = box.parentElement) {
    if (['auto', 'scroll'].includes(getComputedStyle(box).overflowX)) return false;
  }
  return element.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
}).map(element => element.outerHTML.slice(0, 80))"""
UNSEEN_IMAGES = "[...document.images].filter(image => !image.naturalWidth).map(image => image.src)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(PROJECT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pages_fit_a_desk_and_a_phone(site: Path, browser: Browser) -> None:
    """Nothing is cut off, each drawing is there, wide tables scroll by themselves, and nothing is fetched elsewhere."""
    for _ in ("desk", "phone"):
        for name in LOOKED_AT:
            browser.open(site / f"{name}.html")
            assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            assert browser.evaluate(TOO_WIDE) == [], name
            assert browser.evaluate(UNSEEN_IMAGES) == [], name
            asked = [
                e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"
            ]
            assert [url for url in asked if not url.startswith(("file:", "data:"))] == [], name
        browser.as_wide_as_a_phone()
