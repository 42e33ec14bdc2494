"""Write the load test's report on any number of runs: Markdown, JSON with its schema, and one HTML page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from cohost.errors import ReportError
from cohost.report import facts, frame
from cohost.report.endpoint_metrics import metrics_of
from cohost.report.formats import Table, moment
from cohost.report.markdown import HEADLINE_COLUMNS, headline_rows, markdown, tables_of
from cohost.report.plots import latencies, plots_of
from cohost.report.reloads import judged_again
from cohost.report.run import Record, load_run
from cohost.report.summary import RunSummary, summarise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cohost.report.frame import Html
    from cohost.report.run import Run

HEADLINE = (
    "Latencies in ms at the fewest texts a call and the fewest callers. Batch efficiency: items/s at batch 8 over "
    "items/s at batch 1. USD per 1M: price an hour over the items of an hour at batch 8."
)

Content = TypeVar("Content", bound=Record)
Rows = list[tuple[str, ...]]


class Report(Record):
    """The JSON file of a report.

    `format` is incremented if programs for the older format would misread the file.
    """

    format: Literal[1] = 1
    runs: tuple[RunSummary, ...]


@dataclass(frozen=True)
class Written(Generic[Content]):
    """The paths of a written report or comparison, the content of its JSON file, and the rows of its first table."""

    markdown: Path
    json: Path
    schema: Path
    page: Path
    content: Content
    rows: Rows


def write_files(out: Path, stem: str, content: Content, rows: Rows, *, markdown: str, page: str) -> Written[Content]:
    """Write a report or a comparison as Markdown, JSON with its schema, and a page; create a missing folder.

    Raises:
        ReportError: the folder cannot be written to.
    """
    files = [out / f"{stem}{end}" for end in (".md", ".json", ".schema.json", ".html")]
    data = content.model_dump_json(indent=2) + "\n"
    schema = json.dumps(content.model_json_schema(), indent=2) + "\n"
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, text in zip(files, (markdown, data, schema, page), strict=True):
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReportError(
            "folder-not-writable", "--out", f"{out} cannot be written to ({error.strerror})", fix="name another folder"
        ) from error
    as_markdown, as_json, as_schema, as_page = files
    return Written(as_markdown, as_json, as_schema, as_page, content, rows)


def write_report(results: Sequence[Path], out: Path, session: Any | None = None) -> Written[Report]:
    """Read runs and write the report on them into a folder.

    Args:
        results: folders of runs.
        out: the folder to write to; created if it is missing.
        session: a boto3 session, to read the endpoint's metrics of the same minutes from CloudWatch; with None,
            CloudWatch is not called.

    Raises:
        ReportError: a run cannot be read, or the folder cannot be written to.
    """
    read = [load_run(path) for path in results]
    metrics = [metrics_of(run, session) for run in read]
    runs = [judged_again(run, found) for run, found in zip(read, metrics, strict=True)]
    summaries = [summarise(run, found) for run, found in zip(runs, metrics, strict=True)]
    rows = [row for summary in summaries for row in headline_rows(summary)]
    report = Report(runs=tuple(summaries))
    page = _page(runs, summaries, rows)
    return write_files(out, "report", report, rows, markdown=markdown(summaries), page=page)


def _page(runs: Sequence[Run], summaries: Sequence[RunSummary], rows: Rows) -> str:
    title = "Load test" if len(runs) == 1 else f"Load tests: {len(runs)} runs"
    parts = [frame.table(Table("", HEADLINE_COLUMNS, rows, "headline names2", HEADLINE))]
    chart = latencies(summaries, ("p50", "p99")) if len(runs) > 1 else None
    if chart is not None:
        parts.append(frame.plots([frame.Plot("All runs", "The first line of each run.", chart)]))
    for run, summary in zip(runs, summaries, strict=True):
        parts += _section(run, summary)
    return frame.page(title, moment(max(summary.record.ended for summary in summaries)), *parts)


def _section(run: Run, summary: RunSummary) -> Iterator[Html]:
    yield frame.heading(summary.record.label)
    yield frame.notes(facts.notes_of(summary))
    yield frame.plots(plots_of(run, summary))
    yield from map(frame.table, tables_of(summary))
    yield frame.table(Table("This run", (), facts.facts_of(summary.record), "facts"))
