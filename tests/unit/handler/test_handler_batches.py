"""The choice of the sequences that share a forward pass."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cohost.handler.cohost_batches import BatchLimits, RequestLog, in_order, together
from constructs_lib.monitoring.model_metrics import FIELDS, MARK

LIMITS = BatchLimits(tokens=4096, sequences=64, pass_cost=64)
LENGTHS = st.lists(st.integers(1, 512), min_size=1, max_size=80)


def test_equal_lengths_run_together_up_to_the_token_budget() -> None:
    """Sixteen texts of 512 tokens run in two batches of eight, the earliest first."""
    assert together([512] * 16, LIMITS) == list(range(8))


def test_a_long_text_does_not_make_short_ones_pay_for_its_padding() -> None:
    """Short texts do not share a batch with a text of 512 tokens, because of the padding."""
    assert together([10] * 30 + [512], LIMITS) == list(range(30))
    assert together([512] + [10] * 30, LIMITS) == [0]


def test_padding_that_costs_less_than_a_pass_is_taken() -> None:
    """Two lengths share a pass if their padding costs less than a second pass."""
    assert together([30, 34], LIMITS) == [0, 1]


def test_a_free_pass_is_never_shared_across_lengths() -> None:
    """If a pass costs nothing, only sequences of equal length share a pass, because padding would cost more."""
    assert together([8, 16, 8], BatchLimits(4096, 64, 0)) == [0, 2]


def test_a_sequence_over_the_budget_runs_alone() -> None:
    """A sequence over the token budget runs alone."""
    assert together([512, 512], BatchLimits(256, 64, 64)) == [0]


def test_without_padding_all_that_fits_runs_in_order() -> None:
    """A packed batch takes the earliest sequences that fit the token budget."""
    assert in_order([100, 4000, 100, 5], LIMITS) == [0, 2, 3]
    assert in_order([5] * 100, LIMITS) == list(range(64))
    assert in_order([9999, 1], LIMITS) == [0]


@given(LENGTHS, st.integers(64, 8192), st.integers(1, 64), st.integers(0, 1000))
def test_every_batch_holds_the_first_and_keeps_the_limits(
    lengths: list[int], tokens: int, sequences: int, pass_cost: int
) -> None:
    """Each batch contains the oldest sequence, and a batch of several sequences keeps the limits."""
    limits = BatchLimits(tokens, sequences, pass_cost)
    for form, total in ((together, lambda b: max(b) * len(b)), (in_order, sum)):
        batch = form(lengths, limits)
        assert batch[0] == 0
        assert len(set(batch)) == len(batch) <= sequences
        assert len(batch) == 1 or total([lengths[index] for index in batch]) <= tokens


def test_the_log_line_of_a_models_requests_has_the_fields_that_the_metric_filters_read() -> None:
    """Counts, then means and 99th percentiles in milliseconds, each field without a blank and in the filters' order."""
    log = RequestLog("mdeberta")
    for number in range(100):
        log.add(status=500 if number < 3 else 200, tokens=7, latency_s=number / 1000, queue_s=0.002)
    mark, *fields = log.line().split(" ")
    assert mark == MARK
    assert dict(zip(FIELDS, fields, strict=True)) == {
        "model": "mdeberta",
        "requests": "100",
        "errors": "3",
        "tokens": "700",
        "latency_ms": "49.5",
        "latency_p99_ms": "99.0",
        "queue_ms": "2.0",
        "queue_p99_ms": "2.0",
    }
