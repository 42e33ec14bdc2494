"""The report on any number of runs, written to a folder: Markdown, JSON with its schema, and one HTML page.

The page needs no script, no font and no request. Its templates and the writing of files are here too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict

from cohost.errors import ReportError
from cohost.report import facts, markdown
from cohost.report.charts import Axis, Chart
from cohost.report.endpoint_metrics import metrics_of
from cohost.report.formats import moment, number
from cohost.report.plots import plots_of
from cohost.report.run import load_run
from cohost.report.summary import RunSummary, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from jinja2 import Template

    from cohost.report.run import Run


def template_of(name: str) -> Template:
    """Return a page's template, which escapes its values and fails for a missing one."""
    environment = Environment(
        loader=PackageLoader("cohost.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(name)


def write_texts(out: Path, texts: Mapping[Path, str]) -> None:
    """Write files into a folder, which is created if it is missing.

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


def page(runs: Sequence[Run], summaries: Sequence[RunSummary]) -> str:
    """Render the whole page."""
    return template_of("report.html.j2").render(
        title="Load test" if len(runs) == 1 else f"Load tests: {len(runs)} runs",
        when=moment(max(summary.record.ended for summary in summaries)),
        headline_columns=markdown.HEADLINE_COLUMNS,
        headlines=[row for summary in summaries for row in markdown.headline_rows(summary)],
        comparison=Markup(_comparison(summaries)) if len(runs) > 1 else None,  # noqa: S704 - our own SVG, texts escaped
        sections=[_section(run, summary) for run, summary in zip(runs, summaries, strict=True)],
    )


def _section(run: Run, summary: RunSummary) -> dict[str, object]:
    record = summary.record
    tables = [
        ("First call of each model", markdown.COLD_COLUMNS, facts.cold_rows(record)),
        ("Steps", markdown.STEP_COLUMNS, markdown.step_rows(summary)),
        ("Failures by kind", markdown.FAILURE_COLUMNS, markdown.failure_rows(summary)),
        ("Caller and endpoint", markdown.METRIC_COLUMNS, facts.metric_rows(summary)),
    ]
    return {
        "label": record.label,
        "notes": facts.notes_of(summary),
        "facts": facts.facts_of(record),
        "plots": [(title, text, Markup(svg)) for title, text, svg in plots_of(run, summary)],  # noqa: S704 - as above
        "tables": [found for found in tables if found[2]],
    }


def _comparison(summaries: Sequence[RunSummary]) -> str:
    """Draw p50 and p99 of every run side by side."""
    found = [(s.record.label, h.model, h.latency_ms) for s in summaries for h in s.headlines[:1] if h.latency_ms]
    values = [value for _, _, latency in found for value in (latency.p50, latency.p99)]
    chart = Chart(Axis(0, max(1, len(found)), "run"), Axis.over(values, "latency, ms"), "Latency of every run")
    for index, (label, model, latency) in enumerate(found):
        for offset, (name, value) in enumerate((("p50", latency.p50), ("p99", latency.p99))):
            left = index + 0.18 + offset * 0.33
            chart.bar(left, left + 0.31, 0, value, offset, f"{label}, {model}: {name} {number(value)} ms")
            chart.legend(name, offset)
    return chart.svg([(index + 0.5, label[:24]) for index, (label, _, _) in enumerate(found)])


class Report(BaseModel):
    """The JSON report. `format` changes when a reader of an older one would misread it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    runs: tuple[RunSummary, ...]


@dataclass(frozen=True)
class Written:
    """The files of a report, and their content."""

    markdown: Path
    json: Path
    schema: Path
    page: Path
    report: Report


def write_report(results: Sequence[Path], out: Path, session: Any | None = None) -> Written:
    """Read runs and write the report on them into a folder.

    Args:
        results: folders of runs.
        out: the folder to write to; made where it is missing.
        session: a boto3 session, to read the endpoint's metrics of the same minutes from CloudWatch; None reads none.

    Raises:
        ReportError: a run cannot be read, or the folder cannot be written to.
    """
    runs = [load_run(path) for path in results]
    summaries = [summarise(run, metrics_of(run, session)) for run in runs]
    report = Report(runs=tuple(summaries))
    written = Written(
        markdown=out / "report.md",
        json=out / "report.json",
        schema=out / "report.schema.json",
        page=out / "report.html",
        report=report,
    )
    texts = {
        written.markdown: markdown.markdown(summaries),
        written.json: report.model_dump_json(indent=2) + "\n",
        written.schema: json.dumps(Report.model_json_schema(), indent=2) + "\n",
        written.page: page(runs, summaries),
    }
    write_texts(out, texts)
    return written
