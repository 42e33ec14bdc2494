"""The names that other programs may import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cohost


@pytest.mark.parametrize("name", cohost.__all__)
def test_each_public_name_is_there(name: str) -> None:
    """Each public name can be imported from the package `cohost`."""
    assert getattr(cohost, name).__module__.startswith("cohost.")


def test_another_name_is_an_attribute_error() -> None:
    """A name that is not public raises AttributeError, as hasattr and pickle need."""
    with pytest.raises(AttributeError, match="has no attribute 'CohostServer'"):
        _ = cohost.CohostServer


@pytest.mark.process
def test_importing_the_package_loads_nothing_heavy() -> None:
    """A worker that imports the handler from this package pays for no boto3 and no pydantic."""
    code = "import sys, cohost.handler; print(sorted({'boto3', 'pydantic', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
