"""The report as one HTML page that needs nothing else: no script, no font, no request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from cohost.report import facts, markdown
from cohost.report.charts import Axis, Chart
from cohost.report.output import template_of
from cohost.report.plots import plots_of
from cohost.report.text import moment, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cohost.report.run import Run
    from cohost.report.summary import RunSummary


def page(runs: Sequence[Run], summaries: Sequence[RunSummary]) -> str:
    """The whole page."""
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
    """p50 and p99 of every run side by side."""
    found = [(s.record.label, h.model, h.latency_ms) for s in summaries for h in s.headlines[:1] if h.latency_ms]
    values = [value for _, _, latency in found for value in (latency.p50, latency.p99)]
    chart = Chart(Axis(0, max(1, len(found)), "run"), Axis.over(values, "latency, ms"), "Latency of every run")
    for index, (label, model, latency) in enumerate(found):
        for offset, (name, value) in enumerate((("p50", latency.p50), ("p99", latency.p99))):
            left = index + 0.18 + offset * 0.33
            chart.bar(left, left + 0.31, 0, value, offset, f"{label}, {model}: {name} {number(value)} ms")
            chart.legend(name, offset)
    return chart.svg([(index + 0.5, label[:24]) for index, (label, _, _) in enumerate(found)])
