"""The largest forward pass of each handler in the memory plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cohost.catalog.models import ModelEntry
from cohost.forecast.plan.memory import demand_of
from cohost.forecast.plan.workers import gpu_worker
from cohost.handler.cohost_options import read_options

if TYPE_CHECKING:
    from cohost.forecast.plan.profiles import Profile

XLMR = "joeddav/xlm-roberta-large-xnli"


def entry(**given: Any) -> ModelEntry:
    """Return XLM-RoBERTa large with these settings."""
    return ModelEntry.model_validate({"model_id": XLMR, "task": "text-classification", **given})


def batched(dtype: str | None = None, **settings: Any) -> ModelEntry:
    """Return the same entry with the batching handler."""
    return entry(handler="batched", batched=settings, **({} if dtype is None else {"dtype": dtype}))


@pytest.mark.parametrize(
    ("given", "on_gpu", "expected"),
    [
        (entry(), True, (1, 512)),
        (entry(batch_size=8), True, (8, 512)),
        (entry(handler="batched"), True, (32, 512)),
        (entry(handler="batched"), False, (10, 512)),
        (batched(max_batch_tokens="auto", max_length="auto"), True, (32, 512)),
        (batched(max_batch_tokens=2048), True, (4, 512)),
        (batched(max_batch_tokens=100), True, (1, 512)),
        (batched(max_length=64), True, (64, 64)),
        (batched(max_length=64, max_batch_sequences=256), True, (256, 64)),
        (batched(max_length=4096), True, (32, 512)),
        (batched(max_batch_sequences=3), True, (3, 512)),
    ],
)
def test_largest_pass_follows_the_handlers_own_limits(
    encoder_profiles: dict[str, Profile],
    given: ModelEntry,
    on_gpu: bool,  # noqa: FBT001
    expected: tuple[int, int],
) -> None:
    """The largest pass is `batch_size` for the stock handler, and the token budget for the batching one."""
    demand = demand_of("m", given, encoder_profiles[XLMR], on_gpu=on_gpu)
    assert (demand.batch, demand.tokens) == expected


def test_what_the_command_line_says_comes_first(encoder_profiles: dict[str, Profile]) -> None:
    """`--tokens` and `--batch` override the settings of the catalog."""
    profile = encoder_profiles[XLMR]
    shorter = demand_of("m", batched(), profile, on_gpu=True, tokens=256)
    assert (shorter.batch, shorter.tokens) == (64, 256)
    assert demand_of("m", batched(), profile, on_gpu=True, batch=5).batch == 5


def test_defaults_are_the_handlers(encoder_profiles: dict[str, Profile]) -> None:
    """The plan uses the handler's defaults for settings that the catalog leaves out."""
    options = read_options({"model_dir": "/m"})
    short = demand_of("m", batched(max_length=8), encoder_profiles[XLMR], on_gpu=True)
    assert (short.batch, short.dtype) == (options.max_batch_sequences, options.dtype)


@pytest.mark.parametrize(
    ("given", "served"),
    [
        (batched("fp16"), "fp16"),
        (batched("auto"), "fp32"),
        (batched("tf32"), "fp32"),
        (batched("fp16", dtype_fallback=True), "fp32"),
        (entry(dtype="fp16"), "fp16"),
        (entry(), None),
    ],
)
def test_weights_are_counted_in_the_dtype_that_may_be_served(
    encoder_profiles: dict[str, Profile], given: ModelEntry, served: str | None
) -> None:
    """The plan counts weights as fp32 if the handler may fall back to fp32."""
    assert demand_of("m", given, encoder_profiles[XLMR], on_gpu=True).dtype == served


def test_loading_in_fp32_counts_where_it_is_the_worst_moment(encoder_profiles: dict[str, Profile]) -> None:
    """A load in fp32 counts if it needs more memory than passes in fp16."""
    profile = encoder_profiles[XLMR]
    small = gpu_worker(demand_of("m", batched("fp16", max_batch_tokens=512), profile, on_gpu=True))
    assert small.weights + small.activations == pytest.approx(profile.weight_bytes("fp32") / 1024**2)
    stock = gpu_worker(demand_of("m", entry(dtype="fp16"), profile, on_gpu=True))
    assert stock.weights + stock.activations < small.weights + small.activations
