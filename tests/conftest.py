"""What holds for the tests of every folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="module")
def _environment_of_its_own() -> Iterator[None]:
    """A file leaves the environment as it found it: what it has moto or torch do is not for the files after it."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
