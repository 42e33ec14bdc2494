"""The counters of all models as Prometheus text.

Metrics that DJL Serving has keep its names and units (DJL Serving 0.36.0: PrometheusAppender; the label is Model).
Metrics that DJL Serving lacks start with `cohost_`: DJL Serving does not count batches, and reports only the size of
the last batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_aws.lmi.models.memory import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from local_aws.lmi.models.model import Model


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TYPES = {
    "Response_2XX_total": ("counter", "inference requests answered 2xx"),
    "Response_4XX_total": ("counter", "inference requests answered 4xx"),
    "Response_5XX_total": ("counter", "inference requests answered 5xx"),
    "QueueTime": ("histogram", "time in the queue, in microseconds"),
    "RequestLatency": ("histogram", "time from arrival to the worker's answer, in microseconds"),
    "cohost_batch_size": ("histogram", "requests in a batch"),
    "cohost_batches_total": ("counter", "batches handed to workers"),
    "cohost_requests_waiting": ("gauge", "requests in the queue now"),
    "cohost_worker_resident_bytes": ("gauge", "resident memory of a worker process"),
}


def exposition(models: Mapping[str, Model]) -> str:
    """Return all counters of all loaded models as Prometheus text (exposition format 0.0.4)."""
    samples: dict[str, list[str]] = {name: [] for name in _TYPES}
    for name, model in models.items():
        for metric, text in _of_model(name, model):
            samples[metric].append(text)
    lines = []
    for metric, (kind, help_text) in _TYPES.items():
        lines += [f"# HELP {metric} {help_text}", f"# TYPE {metric} {kind}", *samples[metric]]
    return "\n".join(lines) + "\n"


def _of_model(name: str, model: Model) -> Iterator[tuple[str, str]]:
    """Yield (metric name, line of text) for every sample of one model."""
    if model.pool is None:
        return
    label = f'Model="{_escaped(name)}"'
    metrics = model.pool.metrics
    for group, count in metrics.responses.items():
        metric = f"Response_{group}XX_total"
        yield metric, f"{metric}{{{label}}} {count}"
    for metric, histogram in metrics.histograms.items():
        for suffix, bound, value in histogram.samples():
            labels = label if bound is None else f'{label},le="{bound}"'
            yield metric, f"{metric}{suffix}{{{labels}}} {value:g}"
    yield "cohost_batches_total", f"cohost_batches_total{{{label}}} {metrics.batches}"
    yield "cohost_requests_waiting", f"cohost_requests_waiting{{{label}}} {model.pool.waiting}"
    metric = "cohost_worker_resident_bytes"
    for pid in model.pids:
        yield metric, f'{metric}{{{label},pid="{pid}"}} {resident_bytes(pid)}'


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
