"""Differences of the documentation's site from its files.

A link out of `docs` has no page there, so it becomes a path; the marks of code blocks (CONTRIBUTING.md) are for tests.
"""

from __future__ import annotations

import re
from pathlib import Path

_OUTSIDE = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)+(?P<path>[^)#]+)(?:#[^)]*)?\)")
_MARK = re.compile(r"^[ ]*<!--[^>]*-->\n(?=[ ]*```)", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace a link out of the documentation by the path of the project's file, if no page of the site has it.

    Pages of `decisions/` link to their neighbours with `../` too; those stay links.
    """
    linked = _OUTSIDE.sub(lambda found: found[0] if _is_page(found["path"]) else f"`{found['path']}`", markdown)
    return _MARK.sub("", linked)


def _is_page(path: str) -> bool:
    return (Path(__file__).parent / path).is_file()
