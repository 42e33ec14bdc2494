"""Compare designs by their load tests, with warnings about whatever limits the comparison.

The comparison is written as Markdown, as JSON with its schema, and as one HTML page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from cohost.errors import ReportError
from cohost.report import frame
from cohost.report.endpoint_metrics import metrics_of
from cohost.report.facts import facts_of, few_calls, price_text
from cohost.report.formats import Table, markdown_notes, markdown_table, moment
from cohost.report.markdown import LATENCY_COLUMNS, RATE_COLUMNS, headline_rows
from cohost.report.page import HEADLINE, Report, Written, write_files
from cohost.report.plots import design_plots_of
from cohost.report.reloads import judged_again
from cohost.report.run import RECORD_FILE, Record, load_run, read_result
from cohost.report.summary import TABLE_BATCH, Headline, RunSummary, summarise
from cohost.routing import CPU_ONNX, INFERENCE_COMPONENTS, MULTI_MODEL, SCALE_TO_ZERO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cohost.report.run import RunRecord


TOPOLOGIES: Final = {
    MULTI_MODEL: "co-hosted on one endpoint",
    SCALE_TO_ZERO: "one component for all models",
    CPU_ONNX: "CPU and ONNX",
    INFERENCE_COMPONENTS: "one component a model",
}
PARTITIONED: Final = "one component a model on partitions of one card"

Note = tuple[str, str]
"""A remark for the reader: its weight (invalid, warning or note) and its text."""


def design_of(record: RunRecord) -> str:
    """Return the name of a run's design, from its stack's topology and from the GPU partitions of its endpoint."""
    if record.target.kind == "container":
        return "container"
    if record.target.partitions:
        return PARTITIONED
    return TOPOLOGIES.get(record.target.topology or "", "unknown")


def where_measured(summaries: Sequence[RunSummary]) -> str:
    """Return a sentence that says if the numbers were measured on AWS or on the local emulator."""
    emulated = [s for s in summaries if s.record.target.emulated]
    if not emulated:
        return "Measured on the targets named below; the machine that the calls came from is named with each."
    machines = sorted({_machine(s.record) for s in emulated})
    whose = "All numbers" if len(emulated) == len(summaries) else f"The numbers of {_labels(emulated)}"
    priced = [summary for summary in emulated if summary.record.price is not None]
    price = f"; the price of {_labels(priced)} was given by hand" if priced else ", so no item has a price"
    return (
        f"{whose} are those of this machine ({'; '.join(machines)}), where the local AWS emulator answered. They prove "
        f"that the designs deploy and answer, but are not the speed of the instance types on AWS{price}."
    )


def notes_of(summaries: Sequence[RunSummary]) -> list[Note]:
    """Return the warnings and remarks about comparing these runs, the most severe first."""
    found = [
        ("invalid" if mark.invalid else "warning", f"{summary.record.label}: {mark.message}")
        for summary in summaries
        for mark in summary.record.marks
    ]
    if len({summary.record.target.emulated for summary in summaries}) > 1:
        text = "the emulator and AWS are in one table: their numbers must not be compared"
        found.append(("invalid", text))
    found += [*_unlike([summary.record for summary in summaries]), *_incomplete(summaries)]
    return sorted(found, key=lambda note: ("invalid", "warning", "note").index(note[0]))


def _read(path: Path) -> list[RunSummary]:
    """Return the summaries of the runs at a path, which is a run's folder with raw samples or a report.json."""
    if path.is_dir() or path.name == RECORD_FILE:
        run = load_run(path)
        metrics = metrics_of(run, None)
        return [summarise(judged_again(run, metrics), metrics)]
    fix = "name one, or write the report again with `cohost report`"
    return list(read_result(path, Report, "a run's folder, or a report.json of this version", fix).runs)


def _unlike(records: Sequence[RunRecord]) -> Iterator[Note]:
    """Yield a warning for each difference of the runs' models, texts or calling machines."""
    by_name = [sorted(record.models, key=lambda model: model.name) for record in records]
    texts = [(record.payloads, *(m.tokens for m in models)) for record, models in zip(records, by_name, strict=True)]
    values: dict[str, Sequence[object]] = {
        "models": [tuple((model.name, model.model_id) for model in models) for models in by_name],
        "texts": texts,
        "machines that called": list(map(_machine, records)),
    }
    if len(set(values["models"])) > 1:  # the lengths of texts depend on the models
        del values["texts"]
    for what, found in values.items():
        if len(set(found)) > 1:
            yield "warning", f"the runs have different {what}; repeat them with the same for a fair table"


def _incomplete(summaries: Sequence[RunSummary]) -> Iterator[Note]:
    for summary in summaries:
        label = summary.record.label
        if not summary.headlines or summary.headlines[0].items_per_s_at_8 is None:
            yield "warning", f"{label}: no step at batch {TABLE_BATCH}; run the standard protocol, `cohost bench`"
        for few in few_calls(summary):
            yield "note", f"{label}: {few}"
        if failed := sum(step.total.failed for step in summary.steps):
            yield "warning", f"{label}: {failed} calls failed; see its own report"


def _machine(record: RunRecord) -> str:
    machine = record.machine
    return f"{machine.host}, {machine.cores} x {machine.processor}"


def _labels(summaries: Sequence[RunSummary]) -> str:
    return ", ".join(summary.record.label for summary in summaries)


COLUMNS = ("design", *LATENCY_COLUMNS, *RATE_COLUMNS, "instance")
MODEL_COLUMNS = ("design", "model", *LATENCY_COLUMNS, *RATE_COLUMNS)
_READ_SO = "All models together; a dash: nothing to price. A p99 marked ~ rests on fewer than five slower calls."
_OWN_RATE = "Items per second of one model of a mix: by the time of its own calls."
FACT_COLUMNS = ("design", "description", "deployed on", "price")


class DesignResult(Record):
    """One design of a comparison; `headlines` has the numbers of all models together, then those of each model."""

    label: str
    design: str
    emulated: bool
    valid: bool
    topology: str | None
    instance_type: str | None
    instance_count: int | None
    price: str
    headlines: tuple[Headline, ...]


class Comparison(Record):
    """The JSON file of a comparison.

    `format` is incremented if programs for the older format would misread the file.
    """

    format: Literal[1] = 1
    measured: str
    notes: tuple[tuple[str, str], ...]
    designs: tuple[DesignResult, ...]


def write_comparison(results: Sequence[Path], out: Path) -> Written[Comparison]:
    """Read the results of load tests, and write a comparison of them into a folder.

    Args:
        results: folders of runs, or report.json files; each run is one design.
        out: the folder to write to; created if it is missing.

    Raises:
        ReportError: a result cannot be read, the results have no run, or the folder cannot be written to.
    """
    summaries = [summary for path in results for summary in _read(path)]
    if not summaries:
        raise ReportError(
            "no-runs", "RESULT", "has no run", allowed="results of `cohost bench`", fix="name a run's folder"
        )
    comparison = Comparison(
        measured=where_measured(summaries), notes=tuple(notes_of(summaries)), designs=tuple(map(_design, summaries))
    )
    tables = _tables(summaries)
    text, page = _markdown(comparison, tables), _page(summaries, comparison, tables)
    return write_files(out, "compare", comparison, table_rows(summaries), markdown=text, page=page)


def table_rows(summaries: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    """Return the rows of the first table: one per design, with the numbers of all its models together."""
    return [(row[0], *row[2:6], *row[7:]) for row in (rows[0] for rows in map(headline_rows, summaries) if rows)]


def _model_rows(summaries: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    """Return one row per model and design; the rows of the same model are adjacent."""
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
        where = f"{kind}, emulated on this machine" if target.emulated else kind
        rows.append((summary.record.label, design_of(summary.record), where, price_text(summary.record)))
    return rows


def _design(summary: RunSummary) -> DesignResult:
    record = summary.record
    return DesignResult(
        label=record.label,
        design=design_of(record),
        emulated=record.target.emulated,
        valid=record.valid,
        topology=record.target.topology,
        instance_type=record.target.instance_type,
        instance_count=record.target.instance_count,
        price=price_text(record),
        headlines=summary.headlines,
    )


def _tables(summaries: Sequence[RunSummary]) -> list[Table]:
    """Return the tables of a comparison: designs with all models together, facts on each design, designs per model."""
    return [
        Table("", COLUMNS, table_rows(summaries), "names1", f"{HEADLINE} {_READ_SO}"),
        Table("What was measured", FACT_COLUMNS, _fact_rows(summaries), "texts"),
        Table("Each model", MODEL_COLUMNS, _model_rows(summaries), "names2", _OWN_RATE),
    ]


def _markdown(comparison: Comparison, tables: Sequence[Table]) -> str:
    parts = ["# Designs compared", f"**{comparison.measured}**", markdown_notes(comparison.notes)]
    for table in tables:
        parts += [f"## {table.title}" if table.title else "", markdown_table(table.columns, table.rows)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _page(summaries: Sequence[RunSummary], comparison: Comparison, tables: Sequence[Table]) -> str:
    # The origin of the numbers is the first remark; it is a warning if the emulator answered.
    weight = "warning where" if any(design.emulated for design in comparison.designs) else "note where"
    first, *others = map(frame.table, tables)
    return frame.page(
        f"Designs compared: {len(summaries)}",
        moment(max(summary.record.ended for summary in summaries)),
        frame.notes([(weight, comparison.measured), *comparison.notes]),
        first,
        frame.plots(design_plots_of(summaries)),
        *others,
        *(frame.table(Table(s.record.label, (), facts_of(s.record), "facts")) for s in summaries),
    )
