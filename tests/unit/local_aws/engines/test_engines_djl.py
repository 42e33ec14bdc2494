"""The djl engine: which program, which settings, and what it asks of the machine first."""

from __future__ import annotations

import ast
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local_aws.engines.djl import MODULES, TRY_IMPORTS, DjlEngine
from local_aws.engines.engine import EngineError

PROJECT = Path(__file__).parents[4]

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_programs import Programs

    from local_aws.engines.engine import Setup


def test_the_whole_command_and_its_settings(
    programs: Programs, make_setup: Callable[..., Setup], tmp_path: Path
) -> None:
    """No port at all, a store and a folder of its own, no model at the start, multi-model mode, our Python."""
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
    """Two servers with one java.io.tmpdir kill each other's workers, whose sockets have the same names."""
    programs.install("djl-serving", {})
    engines = DjlEngine(None), DjlEngine(None)
    options = [engine.start(make_setup()).environment["JAVA_OPTS"] for engine in engines]
    assert options[0] != options[1]
    for engine in engines:
        engine.stop()


def test_a_folder_too_long_for_sockets_is_told(
    programs: Programs, make_setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Java would fail with an errno; the message names the variable, and nothing is left there."""
    programs.install("djl-serving", {})
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with pytest.raises(EngineError, match=r"TMPDIR: .*x is too long for sockets"):
        DjlEngine(None).start(make_setup())
    assert list(long.iterdir()) == []


def test_the_users_java_options_stay(
    programs: Programs, make_setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog's go before the shell's; the folder is named last, where Java takes it even if they name another."""
    programs.install("djl-serving", {})
    monkeypatch.setenv("JAVA_OPTS", "-Xmx1g")
    catalogs = "-Xmx2g -Djava.io.tmpdir=/x"
    for given, expected in (({}, "-Xmx1g"), ({"JAVA_OPTS": catalogs}, catalogs)):
        engine = DjlEngine(None)
        options = engine.start(make_setup(environment=given)).environment["JAVA_OPTS"]
        engine.stop()
        assert options.startswith(f"{expected} -Djava.io.tmpdir=/")


def test_a_catalogs_variables_open_no_port(programs: Programs, make_setup: Callable[..., Setup]) -> None:
    """SERVING_ variables go before the configuration, so those of the address are ours."""
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


@pytest.mark.process
def test_all_is_checked_before_anything_starts(
    programs: Programs, make_setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Program, Java, and a Python with what both handlers import: only the last one is run."""
    programs.install("djl-serving", {})
    programs.install("java", {})
    python = programs.install("mypython", {"-c": {}})
    monkeypatch.setenv("PYTHON_EXECUTABLE", "mypython")
    engine = DjlEngine(None)
    engine.check(make_setup(handlers={"stock", "batched"}))
    ((name, arguments, _),) = programs.calls
    assert (name, arguments[0]) == ("mypython", "-c")
    assert arguments[2:] == sorted(MODULES["stock"])
    assert engine.start(make_setup()).environment["PYTHON_EXECUTABLE"] == str(python)
    engine.stop()


@pytest.mark.process
def test_the_batched_handler_needs_no_peft(programs: Programs, make_setup: Callable[..., Setup]) -> None:
    """A catalog without the stock handler is not asked for what that alone imports."""
    programs.install("djl-serving", {})
    programs.install("java", {})
    python = programs.install("python", {"-c": {}})
    check = DjlEngine(None).check
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHON_EXECUTABLE", str(python))
        check(make_setup(handlers={"batched"}))
    assert programs.arguments("python")[0][2:] == ["numpy", "torch", "transformers"]


def test_the_list_of_modules_holds_every_import_of_our_handler() -> None:
    """Each module from elsewhere that the handler's files import at the top; the server's own is djl_python."""
    imported = set()
    for file in (PROJECT / "cohost" / "handler").glob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module).partition(".")[0])
    elsewhere = imported - sys.stdlib_module_names - {"djl_python"}
    assert {name for name in elsewhere if not name.startswith("cohost_")} == set(MODULES["batched"])


@pytest.mark.process
def test_a_python_is_asked_by_importing(tmp_path: Path) -> None:
    """The very question, put to a real Python: each module that cannot be imported is named, and nothing else."""
    (tmp_path / "broken.py").write_text("raise RuntimeError('half\\ninstalled')\n")
    command = [sys.executable, "-c", TRY_IMPORTS, "json", "broken", "no_such_module"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == "broken (half installed)\nno_such_module (No module named 'no_such_module')\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("present", "home", "message"),
    [
        ([], None, "djl-serving is not on PATH; .*--djl-home"),
        ([], Path("/nowhere"), "--djl-home: /nowhere has neither bin/djl-serving nor bin/serving"),
        (["djl-serving"], None, "java is not on PATH; .*JAVA_HOME"),
        (
            ["djl-serving", "java"],
            None,
            r"cannot import PIL \(No module named 'PIL'\), peft \(x\), which the catalog's handlers import.*PYTHON_",
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
    bare = programs.install("bare", {"-c": {"out": "PIL (No module named 'PIL')\npeft (x)\n"}})
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
