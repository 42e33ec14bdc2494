"""The product's own template, synthesised once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

# jsii writes a banner to stderr on a Node version at its end of life; set before it is imported.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
# Prices are called old by the day; these tests are of a day on which the snapshot is not (2026-11-30).
os.environ["SOURCE_DATE_EPOCH"] = "1796000000"

from synthesis import ROOT, make_stack, template_of

from cohost.catalog_file import load_catalog

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog


@pytest.fixture(scope="session")
def product_catalog() -> Catalog:
    """Return the catalog that `cdk deploy` uses by default."""
    return load_catalog(ROOT / "model_configs/encoders.yaml").catalog


@pytest.fixture(scope="session")
def product(product_catalog: Catalog) -> dict[str, Any]:
    """Return the template of the default catalog, for tests that only read it."""
    return template_of(make_stack(product_catalog))
