"""Writes the table by which designs are compared: Markdown, JSON with its schema, and one page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from markupsafe import Markup
from pydantic import BaseModel, ConfigDict

from cohost.report import designs
from cohost.report.designs_plots import plots_of
from cohost.report.errors import ReportError
from cohost.report.facts import facts_of, price_text
from cohost.report.markdown import headline_rows, table
from cohost.report.output import template_of, write_texts
from cohost.report.summary import Headline, RunSummary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COLUMNS = ("design", "p50", "p90", "p95", "p99 ms", "items/s at batch 8", "batch efficiency", "USD per 1M", "instance")
MODEL_COLUMNS = ("design", "model", *COLUMNS[1:-1])
FACT_COLUMNS = ("design", "what it is", "deployed on", "price")


class DesignResult(BaseModel):
    """One design: its run's headline over all models, then those of each model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    design: str
    emulated: bool
    valid: bool
    topology: str | None
    instance_type: str | None
    instance_count: int | None
    price: str
    headlines: tuple[Headline, ...]


class Comparison(BaseModel):
    """The JSON file: `format` changes when a reader of an older one would misread it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    measured: str
    notes: tuple[tuple[str, str], ...]
    designs: tuple[DesignResult, ...]


@dataclass(frozen=True)
class WrittenComparison:
    """The files of a comparison, and what is in them."""

    markdown: Path
    json: Path
    schema: Path
    page: Path
    comparison: Comparison
    rows: list[tuple[str, ...]]


def write_comparison(results: Sequence[Path], out: Path) -> WrittenComparison:
    """Read results and write the comparison of them into a folder.

    Args:
        results: folders of runs, or report.json files; each run is one design.
        out: the folder to write to; made where it is missing.

    Raises:
        ReportError: a result cannot be read, there is none, or the folder cannot be written to.
    """
    summaries = designs.read_results(results)
    if not summaries:
        raise ReportError("RESULT: holds no run; allowed: results of `cohost bench`; fix: name a run's folder")
    comparison = _comparison(summaries)
    written = WrittenComparison(
        markdown=out / "compare.md",
        json=out / "compare.json",
        schema=out / "compare.schema.json",
        page=out / "compare.html",
        comparison=comparison,
        rows=table_rows(summaries),
    )
    texts = {
        written.markdown: _markdown(summaries, comparison),
        written.json: comparison.model_dump_json(indent=2) + "\n",
        written.schema: json.dumps(Comparison.model_json_schema(), indent=2) + "\n",
        written.page: _page(summaries, comparison),
    }
    write_texts(out, texts)
    return written


def table_rows(summaries: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    """The rows of the table, a design each, over all its models."""
    return [(row[0], *row[2:6], *row[7:]) for row in (rows[0] for rows in map(headline_rows, summaries) if rows)]


def _model_rows(summaries: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    """The same for each model apart, model by model, so that designs stand below each other."""
    rows = [
        (row[0], row[1], *row[2:6], *row[7:-1])
        for summary in summaries
        for row in headline_rows(summary)[1 if len(summary.headlines) > 1 else 0 :]
    ]
    order = list(dict.fromkeys(row[1] for row in rows))
    return sorted(rows, key=lambda row: order.index(row[1]))


def _fact_rows(summaries: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for summary in summaries:
        target = summary.record.target
        count = "" if target.instance_count in {None, 1} else f"{target.instance_count} x "
        kind = f"{count}{target.instance_type or 'unknown'}"
        where = f"{kind}, acted out on this machine" if target.emulated else kind
        rows.append((summary.record.label, designs.design_of(summary.record), where, price_text(summary.record)))
    return rows


def _comparison(summaries: Sequence[RunSummary]) -> Comparison:
    return Comparison(
        measured=designs.where_measured(summaries),
        notes=tuple(designs.notes_of(summaries)),
        designs=tuple(map(_design, summaries)),
    )


def _design(summary: RunSummary) -> DesignResult:
    record = summary.record
    return DesignResult(
        label=record.label,
        design=designs.design_of(record),
        emulated=record.target.emulated,
        valid=record.valid,
        topology=record.target.topology,
        instance_type=record.target.instance_type,
        instance_count=record.target.instance_count,
        price=price_text(record),
        headlines=summary.headlines,
    )


def _markdown(summaries: Sequence[RunSummary], comparison: Comparison) -> str:
    parts = ["# Designs compared", f"**{comparison.measured}**"]
    if comparison.notes:
        parts.append("\n".join(f"- **{weight}**: {text}" for weight, text in comparison.notes))
    parts += [table(COLUMNS, table_rows(summaries)), "## What was measured", table(FACT_COLUMNS, _fact_rows(summaries))]
    parts += ["## Each model", table(MODEL_COLUMNS, _model_rows(summaries))]
    return "\n\n".join(parts) + "\n"


def _page(summaries: Sequence[RunSummary], comparison: Comparison) -> str:
    return template_of("compare.html.j2").render(
        title=f"Designs compared: {len(summaries)}",
        when=designs.when_of(summaries),
        measured=comparison.measured,
        emulated=any(summary.record.target.emulated for summary in summaries),
        notes=comparison.notes,
        columns=COLUMNS,
        rows=table_rows(summaries),
        facts=(FACT_COLUMNS, _fact_rows(summaries)),
        models=(MODEL_COLUMNS, _model_rows(summaries)),
        plots=[(title, text, Markup(svg)) for title, text, svg in plots_of(summaries)],  # noqa: S704 - our own SVG
        runs=[(summary.record.label, facts_of(summary.record)) for summary in summaries],
    )
