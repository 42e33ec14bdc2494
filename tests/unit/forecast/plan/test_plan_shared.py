"""The memory of models with `handler: shared`: one engine process per device, and each model's weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from cohost import cli
from cohost.catalog.models import Catalog
from cohost.catalog.serving import properties_of
from cohost.catalog_file import load_catalog
from cohost.forecast.fleet import plan_fleet
from cohost.forecast.plan.capacity import first_change, room_of
from cohost.forecast.plan.drawing import gpu_segments, host_segments, html_page
from cohost.forecast.plan.memory import plan_catalog, plan_demands, required_memory, usable_gpu_mib, with_derived_memory
from cohost.forecast.plan.workers import ALLOCATOR_MIB, ALLOCATOR_SHARE, KERNELS_MIB, SERVER
from cohost.forecast.pricing.price_list import load_prices
from cohost.handler.cohost_memory import CUDA_CONTEXT_MIB
from cohost.hardware.instances import INSTANCES

if TYPE_CHECKING:
    from cohost.forecast.plan.memory import MemoryPlan
    from cohost.forecast.plan.profiles import Profile

ROOT = Path(__file__).parents[4]


def with_handler(catalog: Catalog, handler: str, *names: str, **endpoint: Any) -> Catalog:
    """The catalog with this handler for the named models, or for all, and keys of the endpoint changed."""
    given = catalog.model_dump(by_alias=True, exclude_unset=True)
    given["endpoint"] |= endpoint
    for name in names or given["models"]:
        given["models"][name] = {
            key: value for key, value in given["models"][name].items() if not key.endswith("memory_mb") and key != "gpu"
        } | {"handler": handler}
    return Catalog.model_validate(given)


@pytest.fixture
def shared(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> MemoryPlan:
    """The plan of the three encoders in one engine process."""
    return plan_catalog(with_handler(encoders, "shared"), encoder_profiles)


def test_shared_models_take_one_context_their_weights_and_the_largest_pass(shared: MemoryPlan) -> None:
    """Every part of the sum that is not weights counts once for the card, and the largest pass stands for all."""
    weights = sum(model.demand.weight_mib for model in shared.models)
    largest = max(model.demand.activation_mib for model in shared.models)
    once = CUDA_CONTEXT_MIB + KERNELS_MIB + ALLOCATOR_MIB + (1 + ALLOCATOR_SHARE) * largest

    assert shared.engines is not None
    assert shared.gpu_idle_mib == pytest.approx(CUDA_CONTEXT_MIB + weights)
    assert shared.engines.gpu_total_mib == pytest.approx(once)
    assert shared.gpu_used_mib == pytest.approx(once + weights + CUDA_CONTEXT_MIB + KERNELS_MIB)


def test_the_host_holds_one_engine_process_and_a_proxy_process_per_model(
    encoders: Catalog, encoder_profiles: dict[str, Profile], shared: MemoryPlan
) -> None:
    """A batched worker has both; the server's check wants an engine process free once more."""
    batched = plan_catalog(with_handler(encoders, "batched"), encoder_profiles)

    assert shared.host_workers_mib == SERVER.gpu_worker_mib + 3 * SERVER.proxy_mib
    assert shared.host_check_mib == SERVER.gpu_worker_mib
    assert batched.host_workers_mib == 3 * (SERVER.gpu_worker_mib + SERVER.proxy_mib)
    assert batched.engines is None
    four = plan_catalog(with_handler(encoders, "shared"), encoder_profiles, instance_type="ml.g5.12xlarge")
    assert four.host_workers_mib == 4 * shared.host_workers_mib


def test_every_engine_process_of_a_device_has_a_context(
    encoders: Catalog, encoder_profiles: dict[str, Profile], shared: MemoryPlan
) -> None:
    """Weights are not doubled: each model is in one of them."""
    two = plan_catalog(with_handler(encoders, "shared", engines_per_device=2), encoder_profiles)
    assert shared.engines is not None
    assert two.gpu_idle_mib - shared.gpu_idle_mib == CUDA_CONTEXT_MIB
    assert two.gpu_used_mib - shared.gpu_used_mib == pytest.approx(shared.engines.gpu_total_mib)
    assert two.host_used_mib - shared.host_used_mib == SERVER.gpu_worker_mib
    assert two.gpu_uncertain_mib - shared.gpu_uncertain_mib == 50


def test_models_of_all_handlers_are_counted_together(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """A shared model beside others pays for the engine process alone."""
    mixed = plan_catalog(with_handler(encoders, "shared", "minilm"), encoder_profiles)
    parts = {model.name: model.gpu_total_mib for model in mixed.models}
    minilm = next(model.demand for model in mixed.models if model.name == "minilm")
    assert mixed.engines is not None
    assert parts["minilm"] == minilm.weight_mib
    assert mixed.gpu_used_mib == pytest.approx(
        sum(parts.values()) + mixed.engines.gpu_total_mib + mixed.engines.gpu_check_mib
    )


def test_on_a_cpu_two_passes_run_side_by_side(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """The host holds the weights, one Python with torch, and the two largest passes."""
    plan = plan_catalog(with_handler(encoders, "shared"), encoder_profiles, instance_type="ml.c7i.2xlarge")
    passes = sorted(model.demand.activation_mib for model in plan.models)
    weights = sum(model.demand.weight_mib for model in plan.models)
    assert plan.gpu_used_mib == 0
    assert plan.host_workers_mib == pytest.approx(
        SERVER.cpu_worker_mib + passes[-1] + passes[-2] + weights + 3 * SERVER.proxy_mib
    )


def test_keys_of_a_shared_model_let_any_model_be_the_first(
    encoders: Catalog, encoder_profiles: dict[str, Profile]
) -> None:
    """Required is proxy process and weights; reserved an engine process, with the largest pass of all models."""
    catalog = with_derived_memory(with_handler(encoders, "shared"), encoder_profiles)
    keys = required_memory(catalog, encoder_profiles)
    reserved = {(one.reserved_memory_mb, one.gpu_reserved_memory_mb) for one in keys.values()}
    demands = {model.name: model.demand for model in plan_catalog(catalog, encoder_profiles).models}

    assert len(reserved) == 1
    assert keys["minilm"].gpu_required_memory_mb < CUDA_CONTEXT_MIB + demands["minilm"].weight_mib
    lines = properties_of(catalog.models["minilm"])
    assert lines["gpu.reserved_memory_mb"] == str(keys["minilm"].gpu_reserved_memory_mb)
    assert lines["reserved_memory_mb"] == "1280"
    assert int(lines["required_memory_mb"]) >= SERVER.proxy_mib + demands["minilm"].loading_mib


def test_a_plan_that_fits_lets_the_last_model_load(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """The server's check of the last load finds what it asks for, whichever model that is."""
    catalog = with_handler(encoders, "shared")
    plan = plan_catalog(catalog, encoder_profiles)
    needs = required_memory(catalog, encoder_profiles)
    for last in plan.models:
        taken = plan.gpu_idle_mib - last.demand.weight_mib + KERNELS_MIB
        wanted = needs[last.name].gpu_required_memory_mb + (needs[last.name].gpu_reserved_memory_mb or 0)
        # Both keys are rounded up to 128 MiB.
        assert taken + wanted <= plan.gpu_used_mib + 2 * 128
        assert taken + wanted <= usable_gpu_mib(INSTANCES["ml.g5.xlarge"])


def test_stated_memory_of_a_shared_model_is_left_as_it_is(
    encoders: Catalog, encoder_profiles: dict[str, Profile]
) -> None:
    """One stated key means that the user decides, the GPU's reserve too."""
    given = with_handler(encoders, "shared").model_dump(by_alias=True, exclude_unset=True)
    given["models"]["minilm"]["gpu"] = {"reserved_memory_mb": 512}
    catalog = with_derived_memory(Catalog.model_validate(given), encoder_profiles)
    assert catalog.models["minilm"].required_memory_mb is None
    assert properties_of(catalog.models["minilm"])["gpu.reserved_memory_mb"] == "512"


def test_a_load_in_fp32_counts_beside_the_largest_pass(
    encoders: Catalog, encoder_profiles: dict[str, Profile], shared: MemoryPlan
) -> None:
    """Other models are called while the weights of a half-precision model are converted and checked."""
    given = with_handler(encoders, "shared").model_dump(by_alias=True, exclude_unset=True)
    given["models"]["xlmr-large"]["dtype"] = "fp16"
    half = plan_catalog(Catalog.model_validate(given), encoder_profiles)
    weights = {model.name: model.demand.weight_mib for model in half.models}
    assert shared.engines is not None
    assert shared.engines.gpu is not None
    assert half.engines is not None
    assert half.engines.gpu is not None
    assert half.engines.gpu.activations - shared.engines.gpu.activations == pytest.approx(weights["xlmr-large"])


def test_room_of_shared_models_is_the_largest_that_fits(shared: MemoryPlan) -> None:
    """The engine process follows the largest pass, also where a change makes another model's pass the largest."""
    demands = [model.demand for model in shared.models]
    for room in room_of(shared):
        assert room.workers == 1
        for batch, fits in ((room.batch, True), (room.batch + 1, room.batch == 1024)):
            changed = [replace(demand, batch=batch) if demand.name == room.name else demand for demand in demands]
            assert plan_demands(changed, instance_type="ml.g5.xlarge").fits is fits, (room, batch)


def test_smaller_passes_of_the_project_s_handlers_are_tokens(shared: MemoryPlan) -> None:
    """The catalog refuses `batch_size` there."""
    demands = [model.demand for model in shared.models]
    large = [replace(demand, batch=512) if demand.name == "mdeberta" else demand for demand in demands]
    change = first_change(plan_demands(large, instance_type="ml.g5.xlarge"))
    assert change == f"models.mdeberta.shared.max_batch_tokens: {128 * 512} (now {512 * 512})"


def test_drawings_show_the_engine_process(shared: MemoryPlan) -> None:
    """The segments sum up to what the plan counts, on the card and on the host."""
    for segments, used in ((gpu_segments(shared), shared.gpu_used_mib), (host_segments(shared), shared.host_used_mib)):
        assert {"engine process", "free for a load"} <= {segment.label for segment in segments}
        assert sum(segment.mib for segment in segments) == pytest.approx(used)
    assert "engine process" in html_page(shared, title="t")


def test_a_fleet_keeps_room_for_the_engine_processes(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """Each endpoint has one, so its card holds less, and its host far more models."""

    def endpoints(handler: str) -> int:
        entry = encoders.models["minilm"].model_dump(by_alias=True, exclude_unset=True) | {"handler": handler}
        models = {f"m{number}": entry for number in range(40)}
        catalog = Catalog.model_validate(
            {"endpoint": encoders.endpoint.model_dump(exclude_unset=True), "models": models}
        )
        types = ["ml.g5.xlarge"]
        fleet = plan_fleet(catalog, encoder_profiles, prices=load_prices(), region="us-east-1", instance_types=types)
        return len(fleet.options[0].placements)

    assert (endpoints("batched"), endpoints("shared")) == (4, 1)


def test_plan_as_table_and_data_names_the_engine_process(tmp_path: Path) -> None:
    """A person sees one row more, a script the parts of the process and the models in it."""
    source = ROOT / "model_configs" / "encoders"
    path = tmp_path / "encoders.yaml"
    path.write_text(source.with_suffix(".yaml").read_text().replace("handler: stock", "handler: shared"))
    path.with_suffix("").with_suffix(".profiles.yaml").write_text(source.with_suffix(".profiles.yaml").read_text())
    assert all(entry.handler == "shared" for entry in load_catalog(path).catalog.models.values())

    result = CliRunner().invoke(cli.app, ["plan", "--catalog", str(path)], catch_exceptions=False)
    data = json.loads(
        CliRunner().invoke(cli.app, ["plan", "--catalog", str(path), "--json"], catch_exceptions=False).stdout
    )

    assert "engine process" in result.stdout
    assert data["engine_processes"]["models"] == ["mdeberta", "minilm", "xlmr-large"]
    assert data["engine_processes"]["gpu_process"]["context_mib"] == CUDA_CONTEXT_MIB
    assert data["models"]["minilm"]["gpu_worker"]["context_mib"] == 0
    assert data["models"]["minilm"]["gpu.reserved_memory_mb"]["planned"] > 0
