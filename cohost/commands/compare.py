"""The subcommand that compares designs by existing results: `cohost compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from cohost.commands import console
from cohost.commands.report import check_packages

DEFAULT_OUT = Path(".cohost/compare")

# Shorter than on the page, and without the instance, so that a terminal of 80 columns holds them.
_COLUMNS = ("design", "p50", "p90", "p95", "p99 ms", "items/s at 8", "at 8 : at 1", "USD per 1M")


def compare(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="A run's folder or a report.json for each design, in the order to be shown.", metavar="RESULT..."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder to write to.")] = DEFAULT_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON too.")] = False,
) -> None:
    """Write the table by which designs are compared, from results of `cohost bench`; deploys and calls nothing.

    Example: cohost compare .cohost/load/20270301-101500 .cohost/load/20270301-113000
    """
    check_packages(("numpy",))
    from cohost.report.comparison import write_comparison  # a deploy machine has no numpy

    written = write_comparison(results, out)
    if as_json:
        console.print_json(json.loads(written.json.read_text(encoding="utf-8")))
    else:
        console.print_table("Designs compared, all models", _COLUMNS, [row[:-1] for row in written.rows])
        console.err.print(Text(written.content.measured), soft_wrap=True)
    for weight, text in written.content.notes:
        if weight == "note":
            console.err.print(Text(f"note: {text}"), soft_wrap=True)
        else:
            console.print_warning(text if weight == "warning" else f"{weight.upper()}: {text}")
    console.err.print(Text(f"Written: {written.page}, {written.markdown.name}, {written.json.name}"), soft_wrap=True)
