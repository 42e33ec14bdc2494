"""The errors for a missing cdk or node have the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.errors import LocalError
from local_aws.demo import cdk as cdk_module
from local_aws.demo.cdk import Cdk

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project folder with a fake cdk."""
    monkeypatch.setattr(cdk_module, "PROJECT", tmp_path)
    return tmp_path


def test_no_node_is_told(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for a missing node is one line with the fix."""
    monkeypatch.setenv("PATH", str(project))

    with refused("node-missing", kind=LocalError):
        Cdk(environment={}, out=project / "out").bootstrap()


def test_no_cdk_is_told(project: Path) -> None:
    """The error for a missing cdk is one line with the fix."""
    with refused("cdk-missing", kind=LocalError):
        Cdk(environment={}, out=project / "out").bootstrap()
