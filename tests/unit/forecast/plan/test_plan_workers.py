"""The planned memory of one worker, compared with measurements of a real endpoint."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from cohost.forecast.plan.memory import demand_of, plan_catalog
from cohost.forecast.plan.workers import ALLOCATOR_MIB, gpu_worker

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog
    from cohost.forecast.plan.profiles import Profile

# nvidia-smi, idle after loading, one worker each on an A10G.
MEASURED_IDLE_MIB = {"mdeberta": 976, "minilm": 852, "xlmr-large": 2578}


def test_idle_workers_are_predicted_within_three_percent(
    encoders: Catalog, encoder_profiles: dict[str, Profile]
) -> None:
    """Shapes and dtypes alone give the GPU memory of the three measured workers."""
    idle = {model.name: model.gpu.idle for model in plan_catalog(encoders, encoder_profiles).models if model.gpu}
    assert idle.keys() == MEASURED_IDLE_MIB.keys()
    for name, measured in MEASURED_IDLE_MIB.items():
        assert idle[name] == pytest.approx(measured, rel=0.03), name


@pytest.mark.parametrize("left_out", MEASURED_IDLE_MIB)
def test_context_from_two_workers_predicts_the_third(
    encoders: Catalog, encoder_profiles: dict[str, Profile], left_out: str
) -> None:
    """The CUDA context computed from any two measured workers predicts the memory of the third."""
    weights = {
        name: encoder_profiles[entry.model_id].weight_bytes() / 1024 / 1024 for name, entry in encoders.models.items()
    }
    others = [MEASURED_IDLE_MIB[name] - weights[name] for name in MEASURED_IDLE_MIB if name != left_out]
    predicted = statistics.mean(others) + weights[left_out]
    assert predicted == pytest.approx(MEASURED_IDLE_MIB[left_out], rel=0.03)


def test_fp32_weights_served_as_fp16_are_half(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """The memory of weights depends on the served dtype, and not on that of the file."""
    entry = encoders.models["xlmr-large"]
    profile = encoder_profiles[entry.model_id]
    full = demand_of("xlmr-large", entry, profile, on_gpu=True)
    half = demand_of("xlmr-large", entry.model_copy(update={"dtype": "fp16"}), profile, on_gpu=True)
    assert half.weight_mib == full.weight_mib / 2
    assert half.activation_mib < full.activation_mib


def test_peak_is_more_than_its_parts_by_the_allocators_slack(
    encoders: Catalog, encoder_profiles: dict[str, Profile]
) -> None:
    """A worker's peak is weights, context, activations, kernels and the reserve of the allocator."""
    entry = encoders.models["minilm"]
    worker = gpu_worker(demand_of("minilm", entry, encoder_profiles[entry.model_id], on_gpu=True))
    assert worker.slack > ALLOCATOR_MIB
    parts = worker.context + worker.weights + worker.activations + worker.kernels + worker.slack
    assert worker.peak == pytest.approx(parts)
    assert 50 <= worker.kernels <= 150
