"""A PATH of fakes only, and what engines are started for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engine_answers import IMAGE
from fake_programs import Programs

from local_aws.engines.engine import Setup

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """No program on PATH but those that a test installs; no Hugging Face, Java or Python settings of the machine's."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("HF_TOKEN", "HF_HOME", "JAVA_HOME", "PYTHON_EXECUTABLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Programs(tmp_path / "bin")


@pytest.fixture
def make_setup(tmp_path: Path) -> Callable[..., Setup]:
    """A setup with what a test gives it."""

    def make(**given: object) -> Setup:
        values = {
            "image": IMAGE,
            "models": Path("/state/models"),
            "scratch": tmp_path,
            "port": 8084,
            "upstream_port": 8085,
            "token": "the-token",
            "environment": {},
            "handlers": {"stock"},
            "hubs": [],
            "weights": {},
        }
        return Setup(**(values | given))  # type: ignore[arg-type]

    return make
