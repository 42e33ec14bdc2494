"""The models that fit an instance, those that do not, and the first change to make."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.errors import PlanError
from cohost.forecast.plan.capacity import first_change, room_of
from cohost.forecast.plan.memory import plan_catalog, plan_demands, usable_gpu_mib
from cohost.hardware.instances import INSTANCES

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog
    from cohost.forecast.plan.memory import MemoryPlan
    from cohost.forecast.plan.profiles import Profile
    from cohost.forecast.plan.workers import Demand


@pytest.fixture
def demands(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> list[Demand]:
    """Return the three encoders with the settings of the default catalog."""
    return [model.demand for model in plan_catalog(encoders, encoder_profiles).models]


def named(demands: list[Demand], name: str) -> Demand:
    """Return one change of the plan by its name."""
    return next(demand for demand in demands if demand.name == name)


def test_product_fits_its_card(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """The three encoders fit an A10G and its host, and the plan proposes no change."""
    plan = plan_catalog(encoders, encoder_profiles)
    assert plan.fits
    assert not plan.tight
    assert first_change(plan) is None
    assert plan.gpu_used_mib < 0.25 * plan.gpu_usable_mib


def test_three_models_times_four_workers_do_not_fit_sixteen_gigabytes(demands: list[Demand]) -> None:
    """Twelve workers do not fit a T4 and its host, and the plan proposes fewer workers of the largest model."""
    plan = plan_demands([replace(demand, workers=4) for demand in demands], instance_type="ml.g4dn.xlarge")
    assert not plan.gpu_fits
    assert not plan.host_fits
    assert plan.gpu_used_mib == pytest.approx(19_555, rel=0.01)
    assert first_change(plan) == "models.xlmr-large.gpu.maxWorkers: 2 (now 4)"


def test_large_batches_are_counted(demands: list[Demand]) -> None:
    """Two workers of XLM-R large with 64 x 512 tokens need 8.5 GB, and 5.2 GB without a pass."""
    demand = replace(named(demands, "xlmr-large"), workers=2, batch=64)
    plan = plan_demands([demand], instance_type="ml.g4dn.xlarge")
    assert plan.gpu_idle_mib == pytest.approx(2 * 2578.8, rel=0.01)
    assert plan.gpu_used_mib == pytest.approx(8_693, rel=0.01)
    assert plan.fits


def test_large_batches_that_do_not_fit_are_made_smaller(demands: list[Demand]) -> None:
    """A batch of 512 x 512 tokens of mDeBERTa fits no GPU of this size, and the plan proposes a smaller one."""
    demand = replace(named(demands, "mdeberta"), batch=512)
    plan = plan_demands([demand], instance_type="ml.g5.xlarge")
    assert not plan.gpu_fits
    assert first_change(plan) == "models.mdeberta.batch_size: 256 (now 512)"


def test_half_precision_is_named_before_a_larger_instance(demands: list[Demand]) -> None:
    """If one worker with fp32 weights does not fit, half precision is proposed before a larger instance."""
    demand = replace(named(demands, "xlmr-large"), batch=440)
    plan = plan_demands([demand], instance_type="ml.p2.xlarge")
    assert not plan.gpu_fits
    assert first_change(plan) == "models.xlmr-large.dtype: fp16 (now fp32)"


def test_several_changes_are_tried_together(demands: list[Demand]) -> None:
    """If no single change is enough, the plan proposes fewer workers for every model."""
    plan = plan_demands([replace(demand, workers=9) for demand in demands], instance_type="ml.g4dn.xlarge")
    assert first_change(plan) == "gpu.maxWorkers: 1 for every model"


def test_larger_instance_is_named_last(demands: list[Demand]) -> None:
    """Models that the host's memory cannot hold with one worker each need a larger type, the same GPU first."""
    many = [replace(demands[1], name=f"m{number}") for number in range(14)]
    plan = plan_demands(many, instance_type="ml.g5.xlarge")
    assert first_change(plan) == "instance_type: ml.g5.2xlarge"


def test_too_much_for_any_instance_means_several_endpoints(demands: list[Demand]) -> None:
    """For models that fit no instance type together, the plan proposes several endpoints."""
    many = [replace(demands[1], name=f"m{number}") for number in range(3000)]
    assert "--fleet" in (first_change(plan_demands(many, instance_type="ml.g5.xlarge")) or "")


def test_room_is_the_largest_that_fits(demands: list[Demand]) -> None:
    """The plan names the largest number of workers and texts per batch: one more does not fit."""
    plan = plan_demands(demands, instance_type="ml.g5.2xlarge")
    for room in room_of(plan):
        assert fits_with(plan, room.name, workers=room.workers)
        assert not fits_with(plan, room.name, workers=room.workers + 1)
        assert fits_with(plan, room.name, batch=room.batch)
        assert room.batch == 1024 or not fits_with(plan, room.name, batch=room.batch + 1)


def fits_with(plan: MemoryPlan, name: str, **changes: int) -> bool:
    """Return True if the plan still fits with one demand changed."""
    changed = [
        replace(model.demand, **changes) if model.name == name else model.demand  # type: ignore[arg-type]
        for model in plan.models
    ]
    return plan_demands(changed, instance_type=plan.instance_type).fits


def test_room_is_zero_where_not_even_one_fits(demands: list[Demand]) -> None:
    """The plan names a room of zero for a model that does not fit at all."""
    plan = plan_demands([replace(demand, workers=5) for demand in demands], instance_type="ml.g4dn.xlarge")
    assert {room.batch for room in room_of(plan)} == {0}


def test_cpu_instance_counts_the_host_alone(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """On an instance without a GPU, weights and activations count for the host's memory."""
    plan = plan_catalog(encoders, encoder_profiles, instance_type="ml.c7i.2xlarge")
    assert plan.gpu_used_mib == 0
    assert plan.gpu_fits
    assert all(model.gpu is None and model.host_mib > model.demand.weight_mib for model in plan.models)


def test_every_gpu_of_an_instance_has_its_own_workers(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """An instance with four GPUs has four times the worker processes on one host."""
    one = plan_catalog(encoders, encoder_profiles, instance_type="ml.g5.xlarge")
    four = plan_catalog(encoders, encoder_profiles, instance_type="ml.g5.12xlarge")
    assert four.gpu_used_mib == one.gpu_used_mib
    assert four.host_used_mib - one.host_used_mib == pytest.approx(3 * 3 * 1200)


def test_cards_have_the_memory_that_cuda_shows() -> None:
    """The plan uses the GPU memory that CUDA reports, which is less than in EC2's table."""
    assert usable_gpu_mib(INSTANCES["ml.g4dn.xlarge"]) == 14_920
    assert usable_gpu_mib(INSTANCES["ml.g5.xlarge"]) == 22_589
    assert usable_gpu_mib(INSTANCES["ml.c7i.xlarge"]) == 0


def test_unknown_instance_type_is_told(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """A plan for an instance type of unknown memory is rejected."""
    with refused("instance-unknown", "endpoint.instance_type", kind=PlanError):
        plan_catalog(encoders, encoder_profiles, instance_type="ml.g9.xlarge")


def test_model_without_profile_is_named_and_not_counted(
    encoders: Catalog, encoder_profiles: dict[str, Profile]
) -> None:
    """A model without a profile is named as unknown, so nobody takes its memory for zero."""
    known = {model_id: profile for model_id, profile in encoder_profiles.items() if "joeddav" not in model_id}
    plan = plan_catalog(encoders, known)
    assert plan.unknown == ("xlmr-large",)
    assert len(plan.models) == 2


def test_batch_size_of_the_catalog_is_planned(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """The largest forward pass is the catalog's batch_size, unless a plan asks for another."""
    entry = encoders.models["minilm"].model_copy(update={"batch_size": 8})
    changed = encoders.model_copy(update={"models": {"minilm": entry}})
    assert plan_catalog(changed, encoder_profiles).models[0].demand.batch == 8
    assert plan_catalog(changed, encoder_profiles, batch=2, tokens=64).models[0].demand.batch == 2
    assert plan_catalog(changed, encoder_profiles, batch=2, tokens=64).models[0].demand.tokens == 64


def test_tight_plans_are_told(demands: list[Demand]) -> None:
    """A plan that fits by less than its uncertainty is called tight."""
    plan = plan_demands([replace(named(demands, "xlmr-large"), workers=8)], instance_type="ml.g5.2xlarge")
    assert plan.fits
    assert plan.tight


def test_a_half_checkpoint_that_is_loaded_in_fp32_takes_twice_its_size_of_the_host(demands: list[Demand]) -> None:
    """The batching handler converts weights on the CPU; the page cache of the checkpoint is smaller, and gives way."""
    half = replace(named(demands, "mdeberta"), loading_dtype=None)
    as_it_is, in_fp32 = (
        plan_demands([replace(half, loading_dtype=dtype)], instance_type="ml.g5.xlarge") for dtype in (None, "fp32")
    )
    assert half.profile.checkpoint_dtype == "fp16"
    assert in_fp32.page_cache_mib == pytest.approx(2 * as_it_is.page_cache_mib)
    on_cpu = plan_demands([replace(half, loading_dtype="fp32")], instance_type="ml.c7i.xlarge", on_gpu=False)
    assert on_cpu.page_cache_mib == as_it_is.page_cache_mib


def test_the_margin_is_what_the_peaks_leave_with_its_uncertainty(demands: list[Demand]) -> None:
    """The plan's margin includes the uncertainty of 50 MiB per worker and of the GPU's size."""
    one, three = (
        plan_demands([replace(demands[0], workers=workers)], instance_type="ml.g5.xlarge") for workers in (1, 3)
    )
    assert one.gpu_margin_mib == pytest.approx(22_589 - one.gpu_used_mib)
    assert three.gpu_uncertain_mib - one.gpu_uncertain_mib == 100
