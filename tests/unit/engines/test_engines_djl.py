"""The djl engine: which program, which settings, and what it asks of the machine first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local_aws.engines import EngineError
from local_aws.engines.djl import DjlEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_programs import Programs

    from local_aws.engines.engine import Setup

TORCH = {"-c import torch, transformers": {}}


def test_the_whole_command_and_its_settings(
    programs: Programs, make_setup: Callable[..., Setup], tmp_path: Path
) -> None:
    """One address for both APIs, a store of its own, no model at the start, multi-model mode, our Python."""
    program = programs.install("djl-serving", {})
    start = DjlEngine(None).start(make_setup(port=8084, environment={"LEVEL": "debug"}))
    assert start.command == [str(program), "--config-file", str(tmp_path / "config.properties")]
    assert (tmp_path / "config.properties").read_text() == (
        "inference_address=http://127.0.0.1:8084\nmanagement_address=http://127.0.0.1:8084\n"
        f"model_store={tmp_path}/store\nload_models=NONE\n"
    )
    assert start.environment == {
        "MODEL_SERVER_HOME": str(tmp_path / "home"),
        "PYTHON_EXECUTABLE": sys.executable,
        "SAGEMAKER_MULTI_MODEL": "true",
        "LEVEL": "debug",
    }
    assert (tmp_path / "store").is_dir()


@pytest.mark.parametrize("name", ["djl-serving", "serving"])
def test_a_home_has_the_program_under_either_name(make_setup: Callable[..., Setup], tmp_path: Path, name: str) -> None:
    """The distribution's is `serving`, the packages' is `djl-serving`."""
    program = tmp_path / "djl" / "bin" / name
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    assert DjlEngine(tmp_path / "djl").start(make_setup()).command[0] == str(program)


def test_all_is_checked_before_anything_starts(
    programs: Programs, make_setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Program, Java, and a Python with the packages: only the last one is run."""
    programs.install("djl-serving", {})
    programs.install("java", {})
    python = programs.install("mypython", TORCH)
    monkeypatch.setenv("PYTHON_EXECUTABLE", "mypython")
    DjlEngine(None).check(make_setup())
    assert [call[:2] for call in programs.calls] == [["mypython", ["-c", "import torch, transformers"]]]
    assert DjlEngine(None).start(make_setup()).environment["PYTHON_EXECUTABLE"] == str(python)


@pytest.mark.parametrize(
    ("present", "home", "message"),
    [
        ([], None, "djl-serving is not on PATH; .*--djl-home"),
        ([], Path("/nowhere"), "--djl-home: /nowhere has neither bin/djl-serving nor bin/serving"),
        (["djl-serving"], None, "java is not on PATH; .*JAVA_HOME"),
        (
            ["djl-serving", "java"],
            None,
            "cannot import torch and transformers.*PYTHON_EXECUTABLE.*No module named 'torch'",
        ),
    ],
)
def test_what_is_missing_is_told_in_one_line(
    programs: Programs,
    make_setup: Callable[..., Setup],
    monkeypatch: pytest.MonkeyPatch,
    present: list[str],
    home: Path | None,
    message: str,
) -> None:
    """Each check names what is missing and where it comes from."""
    for name in present:
        programs.install(name, {})
    bare = programs.install("bare", {"-c": {"code": 1, "err": "ModuleNotFoundError: No module named 'torch'\n"}})
    monkeypatch.setenv("PYTHON_EXECUTABLE", str(bare))
    with pytest.raises(EngineError, match=message) as caught:
        DjlEngine(home).check(make_setup())
    assert "\n" not in str(caught.value)


def test_models_and_weights_are_told_as_they_lie(make_setup: Callable[..., Setup]) -> None:
    """The server runs on this machine, so it sees this machine's paths."""
    engine, setup = DjlEngine(None), make_setup(weights={"minilm": Path("/hub/org/minilm")})
    assert engine.model_url(setup, "minilm") == "/state/models/minilm/model"
    assert engine.weights_url(setup, "minilm") == "/hub/org/minilm"
    assert engine.weights_url(setup, "other") is None
    engine.stop()
