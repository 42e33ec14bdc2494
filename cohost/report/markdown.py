"""Write the load test's report as Markdown, and compute the rows of its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohost.report import facts
from cohost.report.formats import NONE, UNKNOWN, Table, duration, markdown_notes, markdown_table, number, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cohost.report.run import RunRecord
    from cohost.report.summary import Headline, Line, RunSummary, Step

LATENCY_COLUMNS = ("p50", "p90", "p95", "p99 ms")
RATE_COLUMNS = ("items/s at batch 8", "batch efficiency", "USD per 1M")
HEADLINE_COLUMNS = ("run", "model", *LATENCY_COLUMNS, "calls", *RATE_COLUMNS, "instance")
_STEP_LATENCY_COLUMNS = ("min", "p50 (95 %)", "p90", "p95", "p99 (95 %)", "max ms")
STEP_COLUMNS = (
    *("step", "model", "calls", "failed", "cut off"),
    *(*_STEP_LATENCY_COLUMNS, "calls/s", "items/s (95 %)", "USD per 1M"),
)
COLD_COLUMNS = ("model", "first answer s", "second call s", "of that loading s", "refused", "failure")
METRIC_COLUMNS = ("metric", "unit", "average", "maximum")
FAILURE_COLUMNS = ("step", "model", "failure", "calls", "share")


def markdown(summaries: Sequence[RunSummary]) -> str:
    """Render the whole report on these runs."""
    head = markdown_table(HEADLINE_COLUMNS, (row for summary in summaries for row in headline_rows(summary)))
    return "\n\n".join(["# Load test", head, *map(_section, summaries)]) + "\n"


def headline_rows(summary: RunSummary) -> list[tuple[str, ...]]:
    """Return a run's rows in the headline table: one for all models together, then one per model."""
    label = summary.record.label if summary.record.valid else f"{summary.record.label} (INVALID)"
    return [(label, *_headline(headline, summary.record)) for headline in summary.headlines]


def step_rows(summary: RunSummary) -> list[tuple[str, ...]]:
    """Return a run's rows in the table of steps: for each step, one for all models together, then one per model."""
    return [
        _line(step, line, summary.record)
        for step in summary.steps
        for line in ((step.total, *step.models) if len(step.models) > 1 else step.models)
    ]


def failure_rows(summary: RunSummary) -> list[tuple[str, ...]]:
    """Return a run's rows in the table of failures, by step, model and kind."""
    return [
        (step.name, line.model, kind, str(count), f"{count / line.calls:.2%}")
        for step in summary.steps
        for line in step.models
        for kind, count in line.failures.items()
    ]


def _headline(headline: Headline, record: RunRecord) -> tuple[str, ...]:
    latency = headline.latency_ms
    efficiency = headline.batch_efficiency
    percentiles = (NONE,) * 4
    if latency is not None:
        p99 = number(latency.p99) + ("~" if latency.p99_is_rough else "")
        percentiles = (number(latency.p50), number(latency.p90), number(latency.p95), p99)
    return (
        headline.model,
        *percentiles,
        str(latency.count if latency else 0),
        short(headline.items_per_s_at_8),
        NONE if efficiency is None else f"{efficiency:.1f}x",
        _cost(headline.usd_per_million, headline.items_per_s_at_8, record),
        headline.instance,
    )


def _cost(usd: float | None, rate: float | None, record: RunRecord) -> str:
    """Return the cost per million items as text.

    If the price is unknown, the text is "unknown"; if there is no rate to price, or the emulator answered, it is a
    dash.
    """
    if usd is not None:
        return number(usd, 2)
    return UNKNOWN if rate and not record.target.emulated else NONE


def _line(step: Step, line: Line, record: RunRecord) -> tuple[str, ...]:
    latency = line.latency_ms
    shown = (NONE,) * 6
    if latency is not None:
        p50, p99 = latency.p50_interval, latency.p99_interval
        rough = "~" if latency.p99_is_rough else ""
        shown = (
            number(latency.least),
            f"{number(latency.p50)} ({number(p50.low)} to {number(p50.high)})",
            number(latency.p90),
            number(latency.p95),
            f"{number(latency.p99)}{rough} ({number(p99.low)} to {number(p99.high)})",
            number(latency.most),
        )
    between = line.items_per_s_interval
    rate = short(line.items_per_s) + (f" ({short(between.low)} to {short(between.high)})" if between else "")
    counts = (str(line.calls), str(line.failed), str(line.cut_off))
    return (
        step.name,
        line.model,
        *counts,
        *shown,
        short(line.calls_per_s) if line.answered else NONE,
        rate,
        _cost(line.usd_per_million, line.items_per_s, record),
    )


def tables_of(summary: RunSummary) -> list[Table]:
    """Return the tables of a run's section, except those without rows."""
    seconds = sum(step.seconds for step in summary.steps)
    tables = (
        Table("First call of each model", COLD_COLUMNS, facts.cold_rows(summary.record)),
        Table(f"Steps ({duration(seconds)} measured)", STEP_COLUMNS, step_rows(summary), "dense names2"),
        Table("Failures by kind", FAILURE_COLUMNS, failure_rows(summary), "names2"),
        Table("Caller and endpoint", METRIC_COLUMNS, facts.metric_rows(summary)),
    )
    return [table for table in tables if table.rows]


def _section(summary: RunSummary) -> str:
    parts = [f"## {summary.record.label}", markdown_notes(facts.notes_of(summary))]
    parts.append(markdown_table(("", ""), facts.facts_of(summary.record)))
    for table in tables_of(summary):
        parts += [f"### {table.title}", markdown_table(table.columns, table.rows)]
    return "\n\n".join(filter(None, parts))
