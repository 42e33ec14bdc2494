"""List the facts that a reader needs to assess a run: machine, target, versions, price and command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohost.report.formats import UNKNOWN, duration, moment, number, short
from cohost.report.summary import instance_of

if TYPE_CHECKING:
    from cohost.report.run import Model, RunRecord
    from cohost.report.summary import RunSummary


FEW_CALLS = 30
"""The number of answered calls below which a step is too short for conclusions."""


def facts_of(record: RunRecord) -> list[tuple[str, str]]:
    """Return a run's facts as names and values, in reading order."""
    target = record.target
    return [
        ("run", f"{record.id}, {moment(record.started)}, {duration(record.ended - record.started)}"),
        ("command", record.command),
        ("target", _target(record)),
        ("instance", instance_of(record)),
        ("price", price_text(record)),
        ("image", target.image or UNKNOWN),
        ("models", "; ".join(map(_model, record.models))),
        ("payloads", record.payloads),
        ("called from", _machine(record)),
        ("connections opened", str(record.connections_opened)),
        ("call time-out", f"{record.call_timeout_s:g} s, no retries"),
        ("versions", ", ".join(f"{name} {version}" for name, version in record.versions.items())),
    ]


def price_text(record: RunRecord) -> str:
    """Return a run's price per hour with its date and source as text; "unknown" if it is not known, never 0."""
    price = record.price
    if price is None:
        return "none: the emulator costs nothing, and its speed is not AWS's" if record.target.emulated else UNKNOWN
    return f"{price.usd_per_hour:g} USD an hour ({price.source}{', ' + price.date if price.date else ''})"


def notes_of(summary: RunSummary) -> list[tuple[str, str]]:
    """Return the remarks on a run, each with its weight (invalid, warning or note) and its text."""
    record = summary.record
    notes = [("invalid" if mark.invalid else "warning", mark.message) for mark in record.marks]
    if record.target.emulated:
        notes.append(("note", "the emulator answered: the numbers are this machine's, not those of AWS"))
    notes += [("warning", text) for text in few_calls(summary)]
    rough = {head.model for head in summary.headlines if head.latency_ms and head.latency_ms.p99_is_rough}
    if rough:
        names = ", ".join(head.model for head in summary.headlines if head.model in rough)
        notes.append(("note", f"p99 marked ~ rests on fewer than five slower calls: {names}"))
    return notes


def few_calls(summary: RunSummary) -> list[str]:
    """Return one sentence on the steps in which no call was answered, and one on the steps with too few answers."""
    none = [step.name for step in summary.steps if not step.total.answered]
    few = [step.name for step in summary.steps if 0 < step.total.answered < FEW_CALLS]
    found = [f"no call was answered in {', '.join(none)}, so there are no numbers of it"] if none else []
    if few:
        found.append(f"fewer than {FEW_CALLS} calls were answered in {', '.join(few)}; measure longer (--measure)")
    return found


def cold_rows(record: RunRecord) -> list[tuple[str, ...]]:
    """Return a row on the first call of each model.

    The cells of a row are model, time to the answer, time of a second call, difference of both (s), refusals and
    failure.
    """
    rows: list[tuple[str, ...]] = []
    for call in record.cold:
        loading = None if call.first_s is None or call.second_s is None else call.first_s - call.second_s
        times = (short(call.first_s), short(call.second_s), short(loading))
        rows.append((call.model, *times, str(call.refused), call.failure or ""))
    return rows


def metric_rows(summary: RunSummary) -> list[tuple[str, ...]]:
    """Return a row for the latency that the callers measured, and one for each metric that SageMaker measured."""
    if summary.metrics is None:
        return []
    found = [step.total.latency_ms for step in summary.steps if step.total.latency_ms]
    rows: list[tuple[str, ...]] = []
    if found:
        mean = sum(part.mean * part.count for part in found) / sum(part.count for part in found)
        most = max(part.most for part in found)
        rows.append(("latency at the caller (measured steps)", "ms", number(mean), number(most)))
    rows += [(m.name, m.unit, number(m.average, 2), number(m.maximum, 2)) for m in summary.metrics.metrics]
    return rows


def _target(record: RunRecord) -> str:
    target = record.target
    if target.kind == "container":
        return f"container {target.url}"
    where = f" in {target.region}" if target.region else ""
    component = target.inference_component_name
    what = f"SageMaker endpoint {target.endpoint_name}{f', inference component {component}' if component else ''}"
    return f"{what}{where} ({target.topology or 'topology unknown'}), {target.url}"


def _machine(record: RunRecord) -> str:
    machine = record.machine
    processes = "1 process" if machine.processes == 1 else f"{machine.processes} processes"
    return f"{machine.host}, {machine.cores} x {machine.processor}, {machine.system}; {processes}"


def _model(model: Model) -> str:
    parts = [model.task]
    if model.model_id:
        parts.append(model.model_id)
    if model.handler:
        parts.append(f"handler {model.handler}")
    settings = model.settings or {}
    parts += [
        f"{name} {settings[key]}"
        for name, key in (("revision", "option.revision"), ("dtype", "option.dtype"), ("GPU workers", "gpu.maxWorkers"))
        if key in settings
    ]
    if model.tokens:
        least, most = model.tokens
        parts.append(f"{least} tokens a text" if least == most else f"{least} to {most} tokens a text")
    return f"{model.name} ({', '.join(parts)})"
