"""Writes a report on any number of runs: Markdown, JSON with its schema, and a page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from cohost.report.endpoint_metrics import metrics_of
from cohost.report.markdown import markdown
from cohost.report.output import write_texts
from cohost.report.page import page
from cohost.report.run import load_run
from cohost.report.summary import RunSummary, summarise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Report(BaseModel):
    """The JSON report: `format` changes when a reader of an older one would misread it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    runs: tuple[RunSummary, ...]


@dataclass(frozen=True)
class Written:
    """The files of a report, and what is in them."""

    markdown: Path
    json: Path
    schema: Path
    page: Path
    report: Report


def write_report(results: Sequence[Path], out: Path, session: Any | None = None) -> Written:  # noqa: ANN401 - boto3's
    """Read runs and write the report on them into a folder.

    Args:
        results: folders of runs.
        out: the folder to write to; made where it is missing.
        session: a boto3 session, to ask CloudWatch for the endpoint's metrics of the same minutes; None asks nobody.

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
        written.markdown: markdown(summaries),
        written.json: report.model_dump_json(indent=2) + "\n",
        written.schema: json.dumps(Report.model_json_schema(), indent=2) + "\n",
        written.page: page(runs, summaries),
    }
    write_texts(out, texts)
    return written
