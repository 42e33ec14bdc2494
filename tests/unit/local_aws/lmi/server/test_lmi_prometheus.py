"""The counters are text in Prometheus's format."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from local_aws.lmi.server.prometheus import exposition
from local_aws.lmi.workers.metrics import ModelMetrics

SAMPLE = re.compile(r'[A-Za-z_][A-Za-z0-9_]*\{Model="(?:[^"\\]|\\.)*"(?:,[a-z]+="[^"]*")?\} [0-9.e+-]+')


def _text(name: str, metrics: ModelMetrics) -> str:
    pool: Any = SimpleNamespace(metrics=metrics, waiting=4, workers=[])
    model: Any = SimpleNamespace(pool=pool, pids=[])
    return exposition({name: model, "not-there-yet": SimpleNamespace(pool=None)})  # type: ignore[dict-item]


def test_batches_are_counted_with_their_sizes_and_waits() -> None:
    """Two batches of 3 and 1 requests give four waiting times and two batch sizes."""
    metrics = ModelMetrics()
    metrics.batch([0.001, 0.002, 0.003])
    metrics.batch([0.5])
    text = _text("m", metrics)
    assert 'cohost_batches_total{Model="m"} 2' in text
    assert 'cohost_batch_size_bucket{Model="m",le="1"} 1' in text
    assert 'cohost_batch_size_sum{Model="m"} 4' in text
    assert 'QueueTime_bucket{Model="m",le="2500"} 2' in text
    assert 'QueueTime_count{Model="m"} 4' in text
    assert 'QueueTime_sum{Model="m"} 506000' in text
    assert 'cohost_requests_waiting{Model="m"} 4' in text


def test_the_text_is_valid_whatever_a_model_is_called() -> None:
    """Special characters in a model name are escaped, and each metric has HELP and TYPE once."""
    lines = _text('a"b\\c\nd', ModelMetrics()).splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples)
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types)) == 9
