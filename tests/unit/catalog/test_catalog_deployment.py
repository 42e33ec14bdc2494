"""The deployment guardrails that a catalog allows, and combinations of settings that it rejects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.catalog.sections.lifecycle import Guardrails, size_of
from cohost.catalog_file import load_catalog
from cohost.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path


def loaded(folder: Path, deployment: str, *, instances: int = 2, rest: str = "monitoring: {}\n") -> Guardrails | None:
    """Return `deployment` of a catalog file with this text."""
    path = folder / "catalog.yaml"
    path.write_text(
        f"endpoint: {{name: e, instance_type: ml.g5.xlarge, initial_instance_count: {instances}, "
        "image: 'djl-inference:0.36.0-lmi26.0.0-cu130'}\n"
        f"deployment: {deployment}\n{rest}"
        "models: {m: {model_id: org/m, task: text-classification}}\n"
    )
    return load_catalog(path).catalog.deployment


def test_default_moves_all_calls_and_keeps_the_old_instances_for_five_minutes(tmp_path: Path) -> None:
    """An empty section moves all calls at once under the alarms of the stack, and keeps old instances for 5 min."""
    found = loaded(tmp_path, "{}", instances=1)
    assert found == Guardrails(strategy="all-at-once", termination_wait_in_seconds=300, rollback_alarms=True)


@pytest.mark.parametrize(("size", "expected"), [("1", ("INSTANCE_COUNT", 1)), ("25%", ("CAPACITY_PERCENT", 25))])
def test_size_is_a_number_of_instances_or_a_share(tmp_path: Path, size: str, expected: tuple[str, int]) -> None:
    """A step's size may be a number of instances or a percentage, as SageMaker's CapacitySize."""
    found = loaded(tmp_path, f"{{strategy: canary, canary_size: {size}}}")
    assert found is not None
    assert found.size is not None
    assert size_of(found.size) == expected


@pytest.mark.parametrize(
    ("deployment", "code", "field"),
    [
        ("{strategy: canary}", "field-missing", ""),
        ("{strategy: canary, canary_size: 60%}", "value-not-allowed", ".canary_size"),
        ("{strategy: canary, canary_size: all}", "value-not-allowed", ".canary_size"),
        ("{strategy: canary, canary_size: 0}", "value-not-allowed", ".canary_size"),
        ("{strategy: canary, canary_size: 2}", "value-too-large", ".canary_size"),
        ("{strategy: linear, canary_size: 1, linear_step_size: 1}", "setting-unused", ".canary_size"),
        ("{canary_size: 1}", "setting-unused", ".canary_size"),
        ("{wait_interval_in_seconds: 60}", "setting-unused", ".wait_interval_in_seconds"),
        (
            "{strategy: rolling, maximum_batch_size: 1, termination_wait_in_seconds: 60}",
            "setting-unused",
            ".termination_wait_in_seconds",
        ),
        (
            "{termination_wait_in_seconds: 600, maximum_execution_timeout_in_seconds: 600}",
            "time-too-short",
            ".maximum_execution_timeout_in_seconds",
        ),
        ("{strategy: blue}", "value-not-allowed", ".strategy"),
        ("{rollback_alarms: []}", "value-not-allowed", ".rollback_alarms"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, deployment: str, code: str, field: str) -> None:
    """Guardrail settings that do not fit together are rejected with the name of the key."""
    with refused(code, f"deployment{field}", kind=CatalogError):
        loaded(tmp_path, deployment)


def test_one_instance_cannot_be_moved_in_parts(tmp_path: Path) -> None:
    """Steps with one instance are rejected, because SageMaker moves at most half of the instances per step."""
    with refused("instances-too-few", "deployment.strategy") as caught:
        loaded(tmp_path, "{strategy: canary, canary_size: 1}", instances=1)
    assert "all-at-once" in caught.value.fix


def test_alarms_of_its_own_need_one_that_is_on(tmp_path: Path) -> None:
    """Guardrails with the alarms of the stack are rejected if `monitoring` is off, because then there are none."""
    with refused("alarm-missing", "deployment.rollback_alarms"):
        loaded(tmp_path, "{}", rest="")
    assert loaded(tmp_path, "{rollback_alarms: [errors-of-the-frontend]}", rest="") is not None
    assert loaded(tmp_path, "{rollback_alarms: false}", rest="") is not None


def test_components_are_updated_otherwise(tmp_path: Path) -> None:
    """Guardrails with scale-to-zero are rejected, because an update changes the component, not the endpoint."""
    path = tmp_path / "catalog.yaml"
    path.write_text(
        "endpoint: {name: e, instance_type: ml.g5.xlarge, topology: scale-to-zero, "
        "image: 'djl-inference:0.36.0-lmi26.0.0-cu130'}\n"
        "deployment: {}\nmodels: {m: {model_id: org/m, task: text-classification}}\n"
    )
    with refused("setting-unused", "deployment"):
        load_catalog(path)
