"""Counters add up, and their text is what Prometheus reads."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from local_aws.lmi.server.prometheus import exposition
from local_aws.lmi.workers.metrics import Histogram, ModelMetrics

SAMPLE = re.compile(r'[A-Za-z_][A-Za-z0-9_]*\{Model="(?:[^"\\]|\\.)*"(?:,[a-z]+="[^"]*")?\} [0-9.e+-]+')


def _text(name: str, metrics: ModelMetrics) -> str:
    pool: Any = SimpleNamespace(metrics=metrics, waiting=4, workers=[])
    model: Any = SimpleNamespace(pool=pool, pids=[])
    return exposition({name: model, "not-there-yet": SimpleNamespace(pool=None)})  # type: ignore[dict-item]


def test_a_bucket_holds_everything_up_to_its_bound() -> None:
    """Bounds are included, buckets add up, the last one is +Inf and equals the count."""
    histogram = Histogram((1, 2, 4))
    for value in (1, 2, 2, 3, 9):
        histogram.observe(value)
    assert list(histogram.samples()) == [
        ("_bucket", "1", 1),
        ("_bucket", "2", 3),
        ("_bucket", "4", 4),
        ("_bucket", "+Inf", 5),
        ("_sum", None, 17.0),
        ("_count", None, 5),
    ]


def test_batches_are_counted_with_their_sizes_and_waits() -> None:
    """Two batches of 3 and 1: four waits, two sizes."""
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


def test_responses_are_counted_by_their_first_digit() -> None:
    """A status that no server would send counts as a server's fault."""
    metrics = ModelMetrics()
    for status in (200, 204, 302, 424, 503, 777, 42):
        metrics.response(status)
    assert metrics.responses == {2: 3, 4: 1, 5: 3}


def test_the_text_is_valid_whatever_a_model_is_called() -> None:
    """Quotes, backslashes and line ends in a name do not break a line; each metric has its HELP and TYPE once."""
    lines = _text('a"b\\c\nd', ModelMetrics()).splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples)
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types)) == 9
