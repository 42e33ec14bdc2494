"""The djl engine: its program and all settings of this program."""

from __future__ import annotations

import ast
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from local_aws.engines.djl import MODULES, DjlEngine
from local_aws.engines.engine import EngineError

PROJECT = Path(__file__).parents[4]

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.engine_programs import Programs

    from local_aws.engines.engine import Setup


def test_the_whole_command_and_its_settings(
    programs: Programs, make_setup: Callable[..., Setup], tmp_path: Path
) -> None:
    """DJL Serving starts without a port, with its own store and folder, no model and multi-model mode."""
    program = programs.install("djl-serving", {})
    engine = DjlEngine(None)
    start = engine.start(make_setup(environment={"LEVEL": "debug"}))
    assert start.upstream is not None
    folder = Path(start.upstream.removeprefix("unix:")).parent
    assert start.command == [str(program), "--config-file", str(tmp_path / "config.properties")]
    assert (tmp_path / "config.properties").read_text() == (
        f"inference_address=unix:{folder}/api.sock\nmanagement_address=unix:{folder}/api.sock\n"
        f"model_store={tmp_path}/store\nload_models=NONE\n"
    )
    assert start.environment == {
        "MODEL_SERVER_HOME": str(tmp_path / "home"),
        "PYTHON_EXECUTABLE": sys.executable,
        "SAGEMAKER_MULTI_MODEL": "true",
        "LEVEL": "debug",
        "SERVING_INFERENCE_ADDRESS": f"unix:{folder}/api.sock",
        "SERVING_MANAGEMENT_ADDRESS": f"unix:{folder}/api.sock",
        "JAVA_OPTS": f"-Djava.io.tmpdir={folder}",
    }
    assert (tmp_path / "store").is_dir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "djl_sock.19000").touch()
    engine.stop()
    assert not folder.exists()


def test_each_server_has_a_folder_of_its_own(programs: Programs, make_setup: Callable[..., Setup]) -> None:
    """Each server has its own java.io.tmpdir, because workers of two servers have sockets of the same names."""
    programs.install("djl-serving", {})
    engines = DjlEngine(None), DjlEngine(None)
    options = [engine.start(make_setup()).environment["JAVA_OPTS"] for engine in engines]
    assert options[0] != options[1]
    for engine in engines:
        engine.stop()


def test_a_folder_too_long_for_sockets_is_told(
    programs: Programs, make_setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A path that is too long for Unix sockets is rejected with the variable to set."""
    programs.install("djl-serving", {})
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with refused("socket-path-too-long", "TMPDIR", kind=EngineError):
        DjlEngine(None).start(make_setup())
    assert list(long.iterdir()) == []


def test_the_users_java_options_stay(
    programs: Programs, make_setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java options of the catalog come before those of the shell, and the engine's folder is last."""
    programs.install("djl-serving", {})
    monkeypatch.setenv("JAVA_OPTS", "-Xmx1g")
    catalogs = "-Xmx2g -Djava.io.tmpdir=/x"
    for given, expected in (({}, "-Xmx1g"), ({"JAVA_OPTS": catalogs}, catalogs)):
        engine = DjlEngine(None)
        options = engine.start(make_setup(environment=given)).environment["JAVA_OPTS"]
        engine.stop()
        assert options.startswith(f"{expected} -Djava.io.tmpdir=/")


def test_a_catalogs_variables_open_no_port(programs: Programs, make_setup: Callable[..., Setup]) -> None:
    """The engine's address overrides SERVING_ variables of the catalog."""
    programs.install("djl-serving", {})
    engine = DjlEngine(None)
    given = {"SERVING_INFERENCE_ADDRESS": "http://0.0.0.0:8080", "SERVING_MANAGEMENT_ADDRESS": "http://0.0.0.0:8081"}
    start = engine.start(make_setup(environment=given))
    engine.stop()
    assert {start.environment[name] for name in given} == {start.upstream}


@pytest.mark.parametrize("name", ["djl-serving", "serving"])
def test_a_home_has_the_program_under_either_name(make_setup: Callable[..., Setup], tmp_path: Path, name: str) -> None:
    """The distribution's is `serving`, the packages' is `djl-serving`."""
    program = tmp_path / "djl" / "bin" / name
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    engine = DjlEngine(tmp_path / "djl")
    assert engine.start(make_setup()).command[0] == str(program)
    engine.stop()


def test_the_list_of_modules_holds_every_import_of_our_handler() -> None:
    """The list of modules contains every third-party import of the batching handler's files."""
    imported = set()
    for file in (PROJECT / "cohost" / "handler").glob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module).partition(".")[0])
    elsewhere = imported - sys.stdlib_module_names - {"djl_python"}
    assert {name for name in elsewhere if not name.startswith("cohost_")} == set(MODULES["batched"])


def test_models_and_weights_are_told_as_they_lie(make_setup: Callable[..., Setup]) -> None:
    """DJL Serving gets this machine's paths of models and weights."""
    engine, setup = DjlEngine(None), make_setup(weights={"minilm": Path("/hub/org/minilm")})
    assert engine.model_url(setup, "minilm") == "/state/models/minilm/model"
    assert engine.weights_url(setup, "minilm") == "/hub/org/minilm"
    assert engine.weights_url(setup, "other") is None
    engine.stop()
