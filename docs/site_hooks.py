"""Change the Markdown of `docs` for the documentation's site: links to files outside `docs`, and marks of code blocks.

The site has no page for a file outside `docs`, so a link to this file becomes the file's path. The comments that mark
code blocks (`<!-- run -->`, see CONTRIBUTING.md) are removed, because only tests need them.
"""

from __future__ import annotations

import re
from pathlib import Path

_OUTSIDE = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)+(?P<path>[^)#]+)(?:#[^)]*)?\)")
_MARK = re.compile(r"^[ ]*<!--[^>]*-->\n(?=[ ]*```)", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return a page with each link to a file outside `docs` replaced by the file's path, and without code-block marks.

    A page of `decisions/` also links to pages of `docs` with `../`; such a link stays a link.
    """
    linked = _OUTSIDE.sub(lambda found: found[0] if _is_page(found["path"]) else f"`{found['path']}`", markdown)
    return _MARK.sub("", linked)


def _is_page(path: str) -> bool:
    return (Path(__file__).parent / path).is_file()
