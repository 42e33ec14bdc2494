"""Fixtures of the embedded cloud's unit tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cloud_fakes import World, make_engine

if TYPE_CHECKING:
    from local_aws.cloudformation.engine import Engine


@pytest.fixture
def world() -> World:
    """An empty world."""
    return World()


@pytest.fixture
def engine(world: World) -> Engine:
    """An engine in that world."""
    return make_engine(world)
