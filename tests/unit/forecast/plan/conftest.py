"""The product's catalog with its profiles, and demands made for a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cohost.catalog_file import load_catalog
from cohost.forecast.plan.profiles import load_profiles, profiles_path

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog
    from cohost.forecast.plan.profiles import Profile

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="session")
def encoders() -> Catalog:
    """Return the default catalog."""
    return load_catalog(ROOT / "model_configs" / "encoders.yaml").catalog


@pytest.fixture(scope="session")
def encoder_profiles() -> dict[str, Profile]:
    """Return the profiles of the three encoders by model id."""
    return load_profiles(profiles_path(ROOT / "model_configs" / "encoders.yaml"))
