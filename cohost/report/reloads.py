"""Mark runs in which a multi-model endpoint loaded models during the measurement.

A call of a model that is not loaded waits while the model is loaded, which takes seconds, so the call's latency is not
that of the model. SageMaker shows calls of models that are not loaded by its answer 429 ModelNotReadyException, and by
its metrics ModelCacheHit (for each call 1 if the model was loaded, else 0) and ModelUnloadingTime (AWS guide
"CloudWatch metrics for multi-model endpoint deployments"). CloudWatch has one value of each of these metrics per
minute, with a delay of some minutes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cohost.report.endpoint_metrics import PERIOD_S
from cohost.report.run import Mark
from cohost.report.samples import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cohost.report.endpoint_metrics import EndpointMetrics, Metric, Point
    from cohost.report.run import Phase, Run

RELOADS: Final = "reloads"
RELOADS_UNKNOWN: Final = "reloads-unknown"
NEAR_S: Final = 2.0
"""Seconds by which the clocks of caller and SageMaker may differ, more than the time synchronisation of either leaves.
"""


def reload_marks(run: Run, metrics: EndpointMetrics | None) -> list[Mark]:
    """Return the marks for models loaded during measured steps; empty for a target whose calls do not load models."""
    target = run.record.target
    measured = [phase for phase in run.record.phases if phase.kind == "measured"]
    if target.kind != "sagemaker" or target.inference_component_name is not None or not measured:
        return []
    found = [*_not_ready(run), *_misses(run, measured, metrics), *_unloads(measured, metrics)]
    if found:
        message = (
            f"{'; '.join(found)}; so latencies contain the time of loading; fix: call fewer models, give them a larger "
            "instance, or a longer --warmup if they were loaded for the first time"
        )
        return [Mark(code=RELOADS, message=message, invalid=True)]
    if metrics is None or metrics.find("ModelCacheHit") is None:
        message = (
            "CloudWatch has no ModelCacheHit of these minutes, so it is unknown if models were loaded again during the "
            "measurement; fix: run `cohost report` on this result in some minutes, with the right "
            "cloudwatch:GetMetricStatistics"
        )
        return [Mark(code=RELOADS_UNKNOWN, message=message, invalid=False)]
    return []


def judged_again(run: Run, metrics: EndpointMetrics | None) -> Run:
    """Return the run with its marks for loaded models replaced by marks from these metrics."""
    others = tuple(mark for mark in run.record.marks if mark.code not in {RELOADS, RELOADS_UNKNOWN})
    marks = (*others, *reload_marks(run, metrics))
    return replace(run, record=run.record.model_copy(update={"marks": marks}))


def _not_ready(run: Run) -> Iterator[str]:
    for index, phase in enumerate(run.record.phases):
        count = int((run.of_phase(index)["outcome"] == Outcome.NOT_READY).sum())
        if phase.kind == "measured" and count:
            yield f"step {phase.name}: SageMaker refused {count} calls because it still loaded the model"


def _misses(run: Run, measured: list[Phase], metrics: EndpointMetrics | None) -> Iterator[str]:
    hits = None if metrics is None else metrics.find("ModelCacheHit")
    if hits is None:
        return
    within = sum(max(0, _missed(point) - _other_calls(run, point)) for point in _during(hits, measured))
    total, calls = sum(map(_missed, hits.points)), sum(point.count for point in hits.points)
    if within or total > _first_loads(run) + max(0, calls - len(run.samples)):
        yield f"{total} of {calls:.0f} calls in the minutes of the run met a model that was not loaded"


def _unloads(measured: list[Phase], metrics: EndpointMetrics | None) -> Iterator[str]:
    unloading = None if metrics is None else metrics.find("ModelUnloadingTime")
    if unloading is None:
        return
    count = sum(
        point.count
        for point in unloading.points
        if any(phase.started <= point.at and point.at + PERIOD_S <= phase.ended for phase in measured)
    )
    if count:
        yield f"{count:.0f} models were unloaded during the measured steps"


def _missed(point: Point) -> int:
    return round(point.count * (1 - point.average))


def _during(metric: Metric, phases: list[Phase]) -> list[Point]:
    """Return the minutes of a metric that overlap with one of the phases."""
    return [
        point
        for point in metric.points
        if any(point.at < phase.ended and point.at + PERIOD_S > phase.started for phase in phases)
    ]


def _other_calls(run: Run, minute: Point) -> int:
    """Return the number of calls in a minute that are not of a measured step, but of another phase or another caller.

    AWS does not document to which minute a call counts that overlaps two minutes, so calls near the minute's bounds are
    included.
    """
    sent, done = run.samples["sent"], run.samples["done"]
    near = (done >= minute.at - NEAR_S) & (sent < minute.at + PERIOD_S + NEAR_S)
    outside = [index for index, phase in enumerate(run.record.phases) if phase.kind != "measured"]
    own = int((near & np.isin(run.samples["phase"], outside)).sum())
    return own + max(0, round(minute.count) - int(near.sum()))


def _first_loads(run: Run) -> int:
    """Return the most calls of a run that can wait for the first loading of a model on an instance.

    If the run began with single first calls and has one instance, the result is one call per model plus the refused
    attempts. Otherwise a call of each caller can wait for the same loading.
    """
    record = run.record
    refused = sum(call.refused for call in record.cold)
    instances = record.target.instance_count or 1
    together = 1 if record.cold and instances == 1 else max(phase.concurrency for phase in record.phases)
    return len(record.models) * instances * together + refused
