"""Render the frame of every HTML page, and the parts of pages.

A page is a single HTML file without scripts and fonts, and causes no requests. No template engine is used, so that a
deploy does not need one. Each function escapes its plain texts; text of the type `Html` is already escaped.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NewType

from cohost.report.charts import SERIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cohost.report.charts import Chart
    from cohost.report.formats import Table

Html = NewType("Html", str)

_STYLE = Path(__file__).with_name("frame.css")
_COLOURS = "".join(
    f".s{n} {{ stroke: var(--c{n}); }} .f{n} {{ fill: var(--c{n}); }} .k{n} {{ color: var(--c{n}); }}\n"
    for n in range(SERIES + 3)
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Plot(NamedTuple):
    """A chart with its title and its description (`what`)."""

    title: str
    what: str
    chart: Chart


def page(title: str, below: str, *parts: Html) -> str:
    """Render a whole page: a title, the line below the title (`below`), and the parts."""
    style = _STYLE.read_text(encoding="utf-8") + _COLOURS
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<header><h1>{escape(title)}</h1><p>lmi-cohost, {escape(below)}</p></header>
{"".join(parts)}</main>
</body>
</html>
"""


def heading(text: str) -> Html:
    """Render the heading of a section."""
    return Html(f"<h2>{escape(text)}</h2>\n")


def card(*parts: Html) -> Html:
    """Render a card (a framed box) around parts of a page."""
    return Html(f'<div class="card">{"".join(parts)}</div>\n')


def paragraphs(*texts: str) -> Html:
    """Render each text as a paragraph; omit empty texts."""
    return Html("".join(f'<p class="what">{escape(text)}</p>' for text in texts if text))


def table(content: Table) -> Html:
    """Render a table in a card; a table that is too wide scrolls."""
    title, columns, rows, kind, what = content
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    head = f"<thead><tr>{heads}</tr></thead>\n" if columns else ""
    lines = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>\n" for row in rows)
    grid = Html(f'<div class="scroll"><table class="{kind}">{head}<tbody>{lines}</tbody></table></div>')
    return card(Html(f"<h3>{escape(title)}</h3>" if title else ""), paragraphs(what), grid)


def notes(weighted: Iterable[tuple[str, str]]) -> Html:
    """Render remarks, each with its weight.

    A weight is one or more CSS classes of the style sheet; the last class is also printed before the remark.
    """
    items = "".join(
        f'<li class="{escape(weight)}"><b>{escape(weight.split()[-1])}</b>{escape(text)}</li>\n'
        for weight, text in weighted
    )
    return Html(f'<ul class="notes">{items}</ul>\n' if items else "")


def plots(drawn: Iterable[Plot]) -> Html:
    """Render charts side by side, each in a card."""
    cards = (
        f'<article class="card plot"><h3>{escape(title)}</h3>{paragraphs(what)}{chart.svg()}</article>\n'
        for title, what, chart in drawn
    )
    return Html(f'<div class="plots">\n{"".join(cards)}</div>\n')
