"""Workers are known by the counters of the embedded container."""

from __future__ import annotations

from local_aws.engines.machine import worker_models


def test_workers_are_known_by_the_containers_counters() -> None:
    """The embedded container's workers are found by its counters, because they have no own arguments."""
    text = '# TYPE x gauge\ncohost_worker_resident_bytes{Model="a-b",pid="12"} 5\ncohost_batches_total{Model="a-b"} 1\n'
    assert worker_models(text) == {12: "a-b"}
