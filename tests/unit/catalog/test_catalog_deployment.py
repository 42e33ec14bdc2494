"""What the catalog takes as deployment guardrails, and what does not go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cohost.catalog.sections.lifecycle import Guardrails, size_of
from cohost.catalog_file import load_catalog
from cohost.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path


def loaded(folder: Path, deployment: str, *, instances: int = 2, rest: str = "monitoring: {}\n") -> Guardrails | None:
    """`deployment` of a catalog file that states it so."""
    path = folder / "catalog.yaml"
    path.write_text(
        f"endpoint: {{name: e, instance_type: ml.g5.xlarge, initial_instance_count: {instances}, "
        "image: 'djl-inference:0.36.0-lmi26.0.0-cu130'}\n"
        f"deployment: {deployment}\n{rest}"
        "models: {m: {model_id: org/m, task: text-classification}}\n"
    )
    return load_catalog(path).catalog.deployment


def test_default_moves_all_calls_and_keeps_the_old_instances_for_five_minutes(tmp_path: Path) -> None:
    """An empty section is the strategy that works with one instance, under the stack's own alarms."""
    found = loaded(tmp_path, "{}", instances=1)
    assert found == Guardrails(strategy="all-at-once", termination_wait_in_seconds=300, rollback_alarms=True)


@pytest.mark.parametrize(("size", "expected"), [("1", ("INSTANCE_COUNT", 1)), ("25%", ("CAPACITY_PERCENT", 25))])
def test_size_is_a_number_of_instances_or_a_share(tmp_path: Path, size: str, expected: tuple[str, int]) -> None:
    """Both are SageMaker's CapacitySize."""
    found = loaded(tmp_path, f"{{strategy: canary, canary_size: {size}}}")
    assert found is not None
    assert found.size is not None
    assert size_of(found.size) == expected


@pytest.mark.parametrize(
    ("deployment", "message"),
    [
        ("{strategy: canary}", "deployment: canary_size is missing with strategy canary"),
        ("{strategy: canary, canary_size: 60%}", "allowed: a number of instances .* fix: write a number, or 1% to 50%"),
        ("{strategy: canary, canary_size: all}", "'all' is not allowed"),
        ("{strategy: canary, canary_size: 0}", "allowed: a number of instances"),
        ("{strategy: canary, canary_size: 2}", "2 of 2 instances; allowed: up to 1; fix: canary_size: 1"),
        (
            "{strategy: linear, canary_size: 1, linear_step_size: 1}",
            "canary_size with strategy linear would do nothing",
        ),
        ("{canary_size: 1}", "canary_size with strategy all-at-once would do nothing; allowed: no size"),
        ("{wait_interval_in_seconds: 60}", "would do nothing; allowed: termination_wait_in_seconds"),
        (
            "{strategy: rolling, maximum_batch_size: 1, termination_wait_in_seconds: 60}",
            "would do nothing; allowed: wait_interval_in_seconds",
        ),
        (
            "{termination_wait_in_seconds: 600, maximum_execution_timeout_in_seconds: 600}",
            "600 s end before the waits of 600 s; allowed: more than 600",
        ),
        ("{strategy: blue}", "allowed: all-at-once, canary, linear or rolling"),
        ("{rollback_alarms: []}", "allowed: true, false, or a list of 1 to 10 names"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, deployment: str, message: str) -> None:
    """Each fault names the key, what is allowed and the fix."""
    with pytest.raises(CatalogError, match=message):
        loaded(tmp_path, deployment)


def test_one_instance_cannot_be_moved_in_parts(tmp_path: Path) -> None:
    """SageMaker takes at most half of the instances; the message says which strategy works."""
    with pytest.raises(CatalogError, match=r"there is 1; allowed: .* fix: write strategy: all-at-once"):
        loaded(tmp_path, "{strategy: canary, canary_size: 1}", instances=1)


def test_alarms_of_its_own_need_one_that_is_on(tmp_path: Path) -> None:
    """Without `monitoring` there are none of the alarms that a bad model sets off within minutes."""
    with pytest.raises(CatalogError, match=r"deployment\.rollback_alarms: true without an alarm .* `monitoring: \{\}`"):
        loaded(tmp_path, "{}", rest="")
    assert loaded(tmp_path, "{rollback_alarms: [errors-of-the-frontend]}", rest="") is not None
    assert loaded(tmp_path, "{rollback_alarms: false}", rest="") is not None


def test_components_are_updated_otherwise(tmp_path: Path) -> None:
    """The endpoint of topology scale-to-zero is not what an update of the models changes."""
    path = tmp_path / "catalog.yaml"
    path.write_text(
        "endpoint: {name: e, instance_type: ml.g5.xlarge, topology: scale-to-zero, "
        "image: 'djl-inference:0.36.0-lmi26.0.0-cu130'}\n"
        "deployment: {}\nmodels: {m: {model_id: org/m, task: text-classification}}\n"
    )
    with pytest.raises(CatalogError, match="deployment with topology scale-to-zero would do nothing"):
        load_catalog(path)
