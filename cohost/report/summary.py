"""Compute the numbers of a run from its raw samples: for each step, and one headline per model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from cohost.report.endpoint_metrics import EndpointMetrics
from cohost.report.formats import usd_per_million
from cohost.report.run import Record, RunRecord
from cohost.report.samples import (
    CUT_OFF,
    Distribution,
    Interval,
    Outcome,
    Samples,
    answered,
    distribution,
    failed,
    latency_s,
    rate_interval,
    service_s,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cohost.report.run import Run

TABLE_BATCH = 8
"""The texts per call at which designs are compared by items per second and by cost."""

ALL_MODELS = "all models"


class Line(Record):
    """The numbers of one model, or of all models together, in one step.

    `latency_ms` covers the answered calls; a call's latency begins when the call was due. `items_per_s` is the rate of
    items answered within the step, None if no call was answered. `items_per_s_alone` estimates, from the time that this
    model's calls took, the rate that the same number of callers would get if they called only this model; None in an
    open load. `usd_per_million` is the price per million items at `items_per_s_alone`, or for all models together at
    `items_per_s`; None if the price is not known.
    """

    model: str
    calls: int
    answered: int
    failed: int
    cut_off: int
    failures: dict[str, int]
    latency_ms: Distribution | None
    calls_per_s: float
    items_per_s: float | None
    items_per_s_interval: Interval | None
    items_per_s_alone: float | None
    usd_per_million: float | None

    @property
    def own_rate(self) -> float | None:
        """Return the rate of the model when called alone if it is known, else its rate in the mix of models."""
        return self.items_per_s if self.items_per_s_alone is None else self.items_per_s_alone


class Step(Record):
    """The numbers of one measured step: of all its calls in `total`, and of each model's calls in `models`."""

    name: str
    batch: int
    concurrency: int
    rate: float | None
    seconds: float
    started: float
    total: Line
    models: tuple[Line, ...]
    generator_cpu: float | None = Field(description="share of one core, of the busiest generator process")
    generator_lag_ms: float | None = Field(description="mean delay of the generator's timers")


class Headline(Record):
    """The headline numbers of one model, or of all models together, by which designs are compared.

    Latencies are from the step with the fewest texts per call and the fewest callers. Batch efficiency compares calls
    of 8 texts with calls of 1 text, from equally many callers: the texts per second of the former, divided by those of
    the latter. The numbers at batch 8 (texts per call) are None if no step measured them. The cost in USD per million
    items at batch 8 is also None if the price is not known.
    """

    model: str
    step: str
    latency_ms: Distribution | None
    items_per_s_at_8: float | None
    batch_efficiency: float | None
    usd_per_million: float | None
    instance: str


class RunSummary(Record):
    """The summary of one run: its record and the numbers computed from its samples."""

    record: RunRecord
    headlines: tuple[Headline, ...]
    steps: tuple[Step, ...]
    metrics: EndpointMetrics | None


def summarise(run: Run, metrics: EndpointMetrics | None = None) -> RunSummary:
    """Return the summary of a run."""
    steps = tuple(_steps(run))
    names = [model.name for model in run.record.models]
    shown = [ALL_MODELS, *names] if len(names) > 1 else names
    return RunSummary(
        record=run.record,
        headlines=tuple(_headline(run.record, steps, name) for name in shown) if steps else (),
        steps=steps,
        metrics=metrics,
    )


def instance_of(record: RunRecord) -> str:
    """Return the number and the type of the instances of a run's target, as text."""
    target = record.target
    if target.emulated:
        return "emulation on this machine"
    if target.kind == "container":
        return "container"
    kind = target.instance_type or "unknown"
    return kind if target.instance_count in {None, 1} else f"{target.instance_count} x {kind}"


def _steps(run: Run) -> Iterator[Step]:
    for index, phase in enumerate(run.record.phases):
        if phase.kind != "measured":
            continue
        cpu, late_s = run.generator_in(phase) or (None, None)
        yield Step(
            name=phase.name,
            batch=phase.batch,
            concurrency=phase.concurrency,
            rate=phase.rate,
            seconds=phase.seconds,
            started=phase.started,
            total=_line(run, index, None),
            models=tuple(_line(run, index, number) for number in range(len(run.record.models))),
            generator_cpu=cpu,
            generator_lag_ms=None if late_s is None else late_s * 1000,
        )


def _line(run: Run, index: int, model: int | None) -> Line:
    phase, samples = run.record.phases[index], run.of_phase(index, model)
    good, bad, in_time = answered(samples), failed(samples), run.answered_in(phase, model)
    rate = float(in_time["items"].sum()) / phase.seconds if len(in_time) else None
    spent = float(service_s(good).sum())
    alone = None if phase.rate is not None or not spent else phase.concurrency * float(good["items"].sum()) / spent
    price = None if run.record.price is None else run.record.price.usd_per_hour
    return Line(
        model=ALL_MODELS if model is None else run.record.models[model].name,
        calls=len(samples),
        answered=len(good),
        failed=len(bad),
        cut_off=int(np.isin(samples["outcome"], CUT_OFF).sum()),
        failures=_failures(bad),
        latency_ms=distribution(latency_s(good)),
        calls_per_s=len(in_time) / phase.seconds,
        items_per_s=rate,
        items_per_s_interval=None
        if rate is None
        else rate_interval(in_time["done"], in_time["items"], phase.started, phase.ended),
        items_per_s_alone=alone,
        usd_per_million=usd_per_million(price, rate if model is None or alone is None else alone),
    )


def _failures(bad: Samples) -> dict[str, int]:
    """Return the number of failed calls of each kind."""
    found: Counter[str] = Counter()
    kinds, counts = np.unique(bad[["outcome", "status"]], return_counts=True)
    for (outcome, status), count in zip(kinds, counts, strict=True):
        found[Outcome(int(outcome)).counted_as(int(status))] += int(count)
    return dict(found)


def _headline(record: RunRecord, steps: tuple[Step, ...], name: str) -> Headline:
    base = min(steps, key=lambda step: (step.batch, step.concurrency))
    at_8 = next((step for step in steps if (step.batch, step.concurrency) == (TABLE_BATCH, base.concurrency)), None)
    rate_8 = None if at_8 is None else _rate(at_8, name)
    rate_1 = _rate(base, name) if base.batch == 1 else None
    price = None if record.price is None else record.price.usd_per_hour
    return Headline(
        model=name,
        step=base.name,
        latency_ms=_line_of(base, name).latency_ms,
        items_per_s_at_8=rate_8,
        batch_efficiency=rate_8 / rate_1 if rate_8 and rate_1 else None,
        usd_per_million=usd_per_million(price, rate_8),
        instance=instance_of(record),
    )


def _rate(step: Step, name: str) -> float | None:
    line = _line_of(step, name)
    return line.items_per_s if name == ALL_MODELS else line.own_rate


def _line_of(step: Step, name: str) -> Line:
    return next((line for line in step.models if line.model == name), step.total)
