"""A model that does not fit is refused before anything is started."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fakes.faults import faulted

from local_aws.lmi.errors import OutOfMemory
from local_aws.lmi.models.memory import check_fits, resident_mb
from local_aws.lmi.models.serving_properties import read_settings

if TYPE_CHECKING:
    from pathlib import Path

    from local_aws.lmi.settings import ModelSettings


@pytest.fixture
def settings(tmp_path: Path) -> ModelSettings:
    """Return a model that requires 2048 MiB and reserves 512 MiB."""
    (tmp_path / "serving.properties").write_text("option.model_id=a/b\n")
    return replace(read_settings(tmp_path, {}), required_memory_mb=2048, reserved_memory_mb=512)


@pytest.mark.parametrize(("used", "fits"), [(0, True), (1440, True), (1441, False)])
def test_required_and_reserved_must_both_be_free(settings: ModelSettings, used: int, fits: bool) -> None:  # noqa: FBT001
    """A load needs required and reserved memory free beside the other models' memory."""
    if fits:
        check_fits(settings, estimated_mb=0, used_mb=used, budget_mb=4000)
    else:
        with faulted("WlmOutOfMemoryException", 507, "No enough memory to load the model."):
            check_fits(settings, estimated_mb=0, used_mb=used, budget_mb=4000)


def test_an_estimate_stands_in_for_a_missing_requirement(settings: ModelSettings) -> None:
    """In multi-model mode a model without required_memory_mb needs a multiple of its files' size."""
    silent = replace(settings, required_memory_mb=0, reserved_memory_mb=0)
    with pytest.raises(OutOfMemory):
        check_fits(silent, estimated_mb=101, used_mb=0, budget_mb=100)


def test_without_a_budget_the_machines_memory_counts(settings: ModelSettings) -> None:
    """Without --memory-mb the machine's memory is the limit (recorded: 05)."""
    with pytest.raises(OutOfMemory):
        check_fits(replace(settings, required_memory_mb=999_999_999), estimated_mb=0, used_mb=0, budget_mb=None)


def test_resident_memory_counts_live_processes_only() -> None:
    """An ended process counts as no resident memory and raises no error."""
    assert resident_mb([os.getpid(), 2**22 + 1]) > 10
