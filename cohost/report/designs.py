"""Results of the standard protocol for several designs, and what a reader must know before comparing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from cohost.report.build import Report
from cohost.report.endpoint_metrics import metrics_of
from cohost.report.errors import ReportError
from cohost.report.facts import FEW_CALLS
from cohost.report.run import RECORD_FILE, load_run
from cohost.report.summary import TABLE_BATCH, summarise
from cohost.report.text import moment
from cohost.routing import CPU_ONNX, INFERENCE_COMPONENTS, MULTI_MODEL, SCALE_TO_ZERO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cohost.report.run import RunRecord
    from cohost.report.summary import RunSummary

TOPOLOGIES: Final = {
    MULTI_MODEL: "co-hosted on one endpoint",
    SCALE_TO_ZERO: "one component for all models",
    CPU_ONNX: "CPU and ONNX",
    INFERENCE_COMPONENTS: "one component a model",
}

Note = tuple[str, str]
"""A weight (invalid, warning or note) and a sentence."""


def read_results(paths: Sequence[Path]) -> list[RunSummary]:
    """The runs of folders with raw samples, and of report.json files, in the order given.

    Raises:
        ReportError: a path is neither, is damaged, or is of another version.
    """
    return [summary for path in paths for summary in _read(path)]


def design_of(record: RunRecord) -> str:
    """The design in a few words, by the topology that the stack's outputs named."""
    if record.target.kind == "container":
        return "container"
    return TOPOLOGIES.get(record.target.topology or "", "unknown")


def where_measured(summaries: Sequence[RunSummary]) -> str:
    """One sentence on whose numbers these are."""
    emulated = [s for s in summaries if s.record.target.emulated]
    if not emulated:
        return "Measured on the targets named below; the machine that the calls came from is named with each."
    machines = sorted({_machine(s.record) for s in emulated})
    whose = "All numbers" if len(emulated) == len(summaries) else f"The numbers of {_labels(emulated)}"
    priced = [summary for summary in emulated if summary.record.price is not None]
    price = f"; the price of {_labels(priced)} was given by hand" if priced else ", so no item has a price"
    return (
        f"{whose} are those of this machine ({'; '.join(machines)}), where an emulation of AWS answered. They prove "
        f"that the designs deploy and answer, and say nothing about the speed of the instance types on AWS{price}."
    )


def notes_of(summaries: Sequence[RunSummary]) -> list[Note]:
    """What speaks against comparing these runs, the worst first."""
    found = [*_invalid(summaries), *_mixed(summaries), *_unlike(summaries), *_incomplete(summaries)]
    return sorted(found, key=lambda note: ("invalid", "warning", "note").index(note[0]))


def _read(path: Path) -> list[RunSummary]:
    if path.is_dir() or path.name == RECORD_FILE:
        run = load_run(path)
        return [summarise(run, metrics_of(run, None))]
    try:
        return list(Report.model_validate_json(path.read_bytes()).runs)
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror}); allowed: a run's folder or a report.json; fix: name one"
        raise ReportError(msg) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        msg = (
            f"{path}: {where}: {first['msg']}; allowed: a run's folder, or a report.json of this version; "
            "fix: name one, or write the report again with `cohost report`"
        )
        raise ReportError(msg) from error


def _invalid(summaries: Sequence[RunSummary]) -> Iterator[Note]:
    for summary in summaries:
        for mark in summary.record.marks:
            yield ("invalid" if mark.invalid else "warning"), f"{summary.record.label}: {mark.message}"


def _mixed(summaries: Sequence[RunSummary]) -> Iterator[Note]:
    kinds = {summary.record.target.emulated for summary in summaries}
    if len(kinds) > 1:
        yield "invalid", "an emulation and AWS are in one table: their numbers must not be held against each other"


def _unlike(summaries: Sequence[RunSummary]) -> Iterator[Note]:
    """What differs between the runs beside their designs."""
    records = [summary.record for summary in summaries]
    same: dict[str, set[object]] = {
        "models": {_models(record) for record in records},
        "texts": {(record.payloads, _tokens(record)) for record in records},
        "machines that called": {_machine(record) for record in records},
    }
    if len(same["models"]) > 1:  # which have texts of lengths of their own
        del same["texts"]
    for what, values in same.items():
        if len(values) > 1:
            yield "warning", f"the runs have different {what}; repeat them with the same for a fair table"


def _incomplete(summaries: Sequence[RunSummary]) -> Iterator[Note]:
    for summary in summaries:
        label = summary.record.label
        if not summary.headlines or summary.headlines[0].items_per_s_at_8 is None:
            yield "warning", f"{label}: no step at batch {TABLE_BATCH}; run the standard protocol, `cohost bench`"
        few = [step.name for step in summary.steps if step.total.answered < FEW_CALLS]
        if few:
            yield "note", f"{label}: fewer than {FEW_CALLS} calls were answered in {', '.join(few)}; measure longer"
        if failed := sum(step.total.failed for step in summary.steps):
            yield "warning", f"{label}: {failed} calls failed; see its own report"


def _models(record: RunRecord) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted((model.name, model.model_id) for model in record.models))


def _tokens(record: RunRecord) -> tuple[tuple[int, int] | None, ...]:
    return tuple(model.tokens for model in sorted(record.models, key=lambda model: model.name))


def _machine(record: RunRecord) -> str:
    machine = record.machine
    return f"{machine.host}, {machine.cores} x {machine.processor}"


def _labels(summaries: Sequence[RunSummary]) -> str:
    return ", ".join(summary.record.label for summary in summaries)


def when_of(summaries: Sequence[RunSummary]) -> str:
    """The moment of the last of the runs."""
    return moment(max(summary.record.ended for summary in summaries))
