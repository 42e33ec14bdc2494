"""How reports come to be files: their pages' templates, and the folder that they are written to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from cohost.report.errors import ReportError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jinja2 import Template


def template_of(name: str) -> Template:
    """A page's template; it escapes what it is given, and fails for what it is not given."""
    environment = Environment(
        loader=PackageLoader("cohost.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(name)


def write_texts(out: Path, texts: Mapping[Path, str]) -> None:
    """Write files of a folder, which is made where it is missing.

    Raises:
        ReportError: the folder cannot be written to.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"--out {str(out)!r}: cannot be written to ({error.strerror}); fix: name another folder"
        raise ReportError(msg) from error
