"""The keys of serving.properties for the handler: defaults, ranges, errors; and a model's true length."""

from __future__ import annotations

import pytest
from handler_calls import properties

from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_texts import length_limit


def test_defaults_hold_where_nothing_is_said() -> None:
    """A model without options is served in fp32 on the CPU, with texts cut at its limit."""
    options = read_options({"model_dir": "/m", "device_id": "-1"})
    assert (options.model, options.task, options.dtype) == ("/m", "text-classification", "fp32")
    assert (options.truncation, options.max_length, options.device_id) == (True, None, None)
    assert options.pass_timeout_s == 20


def test_values_are_read_as_the_server_hands_them_over() -> None:
    """Options are parsed from text, as the server passes all of them."""
    given = properties("org/name", max_length=128, truncation="False", device_id=1, cpu__maxWorkers=2, dtype="auto")
    options = read_options(given)
    assert (options.max_length, options.truncation, options.device_id, options.workers) == (128, False, 1, 2)


def test_all_faults_come_together_each_with_what_is_allowed() -> None:
    """A load reports all wrong options at once, each with the allowed values."""
    given = properties("m", dtype="int8", max_batch_tokens="many", normalize="yes", max_queue_time_ms=0)
    with pytest.raises(ValueError, match="dtype: got 'int8'; allowed: one of auto, fp32, tf32, fp16, bf16") as caught:
        read_options(given)
    for part in ("max_batch_tokens: got 'many'", "normalize: got 'yes'", "max_queue_time_ms: got '0'; allowed: 1 to"):
        assert part in str(caught.value)


def test_a_queue_that_could_never_take_the_largest_request_is_refused() -> None:
    """A queue smaller than the largest request is rejected, because this request could never be served."""
    with pytest.raises(ValueError, match="max_queued_sequences: got 10, and the largest request has 20"):
        read_options(properties("m", max_queued_sequences=10, max_sequences_per_request=20))


@pytest.mark.parametrize(
    ("positions", "offset", "tokenizer_maximum", "wanted", "limit"),
    [
        (512, 0, 512, None, 512),
        (514, 2, 512, None, 512),
        (514, 2, int(1e30), None, 512),
        (512, 0, int(1e30), None, 512),
        (512, 0, 256, None, 256),
        (512, 0, 512, 128, 128),
        (512, 0, 512, 4096, 512),
        (None, 0, 512, None, 512),
        (None, 0, int(1e30), 300, 300),
    ],
)
def test_the_limit_is_the_least_that_is_true(
    positions: int | None, offset: int, tokenizer_maximum: int, wanted: int | None, limit: int
) -> None:
    """A model's limit respects RoBERTa's offset, ignores absurd tokenizer limits, and can be lowered."""
    given = {"positions": positions, "offset": offset, "tokenizer_maximum": tokenizer_maximum, "wanted": wanted}
    assert length_limit(model="m", **given) == limit  # type: ignore[arg-type] # as annotated above


def test_a_model_without_any_limit_asks_for_one() -> None:
    """A model without a known limit needs max_length."""
    with pytest.raises(ValueError, match="max_length: m and its tokenizer state no limit; fix: set max_length"):
        length_limit(model="m", positions=None, offset=0, tokenizer_maximum=int(1e30), wanted=None)
