"""Packing of models: no bin over its capacity, replicas apart, close to the fewest bins."""

from __future__ import annotations

import random

import pytest
from fakes.refusals import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from cohost.errors import PlanError
from cohost.forecast.fleet import Item, lower_bound, pack

CAPACITY = (100.0, 50.0, 1.0)
ITEMS = st.lists(
    st.builds(
        Item,
        name=st.uuids().map(str),
        sizes=st.tuples(st.floats(0, 100), st.floats(0, 50), st.floats(0, 1)),
        replicas=st.integers(1, 4),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(items=ITEMS)
def test_every_replica_is_placed_once_and_nothing_is_too_full(items: list[Item]) -> None:
    """For any sizes all replicas are placed, no bin has two of one item, and no capacity is exceeded."""
    bins = pack(items, CAPACITY)
    placed = sorted(name for found in bins for name in found.names)
    assert placed == sorted(item.name for item in items for _ in range(item.replicas))
    for found in bins:
        assert len(set(found.names)) == len(found.names)
        assert all(used <= limit + 1e-6 for used, limit in zip(found.used, CAPACITY, strict=True))
    assert len(bins) >= lower_bound(items, CAPACITY)


@settings(max_examples=30, deadline=None)
@given(items=ITEMS, seed=st.integers())
def test_order_of_the_catalog_changes_nothing(items: list[Item], seed: int) -> None:
    """The placement depends on sizes and names, and not on the order in the file."""
    shuffled = random.Random(seed).sample(items, len(items))  # noqa: S311 - no secret
    assert [found.names for found in pack(items, CAPACITY)] == [found.names for found in pack(shuffled, CAPACITY)]


@pytest.mark.parametrize("seed", range(5))
def test_packing_is_within_ten_percent_of_the_lower_bound(seed: int) -> None:
    """Random models need at most ten percent more endpoints than their sum of sizes."""
    generator = random.Random(seed)  # noqa: S311 - no secret
    items = [
        Item(
            name=f"m{number}",
            sizes=(generator.uniform(2, 35), generator.uniform(1, 8), generator.uniform(0, 0.1)),
            replicas=generator.choice((1, 1, 1, 2)),
        )
        for number in range(1000)
    ]
    assert len(pack(items, CAPACITY)) <= 1.1 * lower_bound(items, CAPACITY)


def test_item_that_fits_nowhere_is_named() -> None:
    """A model larger than every endpoint is named."""
    with refused("model-too-large", "models.large", kind=PlanError):
        pack([Item(name="large", sizes=(101.0, 0.0, 0.0))], CAPACITY)


def test_something_of_a_size_that_bins_lack_fits_nowhere() -> None:
    """A model that needs GPU memory does not fit a type without a GPU."""
    with refused("model-too-large", "models.m", kind=PlanError):
        pack([Item(name="m", sizes=(1.0, 1.0))], (0.0, 10.0))


def test_no_items_need_no_bins() -> None:
    """An empty fleet is empty."""
    assert pack([], CAPACITY) == []
    assert lower_bound([], CAPACITY) == 0
