"""Counters add up."""

from __future__ import annotations

from local_aws.lmi.workers.metrics import Histogram, ModelMetrics


def test_a_bucket_holds_everything_up_to_its_bound() -> None:
    """Buckets include their bounds and add up, and the +Inf bucket equals the count."""
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


def test_responses_are_counted_by_their_first_digit() -> None:
    """A status that no server would send counts as a server's fault."""
    metrics = ModelMetrics()
    for status in (200, 204, 302, 424, 503, 777, 42):
        metrics.response(status)
    assert metrics.responses == {2: 3, 4: 1, 5: 3}
