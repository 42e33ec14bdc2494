"""The djl engine's checks, which run a Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from local_aws.engines.djl import MODULES, TRY_IMPORTS, DjlEngine
from local_aws.engines.engine import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.engine_programs import Programs

    from local_aws.engines.engine import Setup


def test_all_is_checked_before_anything_starts(
    programs: Programs, make_setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Program, Java, and Python with both handlers' imports are checked before the start."""
    programs.install("djl-serving", {})
    programs.install("java", {})
    python = programs.install("mypython", {"-c": {}})
    monkeypatch.setenv("PYTHON_EXECUTABLE", "mypython")
    engine = DjlEngine(None)
    engine.check(make_setup(handlers={"stock", "batched"}))
    ((name, arguments, _),) = programs.calls
    assert (name, arguments[0]) == ("mypython", "-c")
    assert arguments[2:] == sorted({*MODULES["stock"], *MODULES["batched"]})
    assert engine.start(make_setup()).environment["PYTHON_EXECUTABLE"] == str(python)
    engine.stop()


def test_the_batched_handler_needs_no_peft(programs: Programs, make_setup: Callable[..., Setup]) -> None:
    """A catalog without the stock handler is not checked for imports of the stock handler."""
    programs.install("djl-serving", {})
    programs.install("java", {})
    python = programs.install("python", {"-c": {}})
    check = DjlEngine(None).check
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHON_EXECUTABLE", str(python))
        check(make_setup(handlers={"batched"}))
    assert programs.arguments("python")[0][2:] == ["numpy", "tokenizers", "torch", "transformers"]


def test_a_python_is_asked_by_importing(tmp_path: Path) -> None:
    """The check imports each module in the given Python, and names exactly those that fail."""
    (tmp_path / "broken.py").write_text("raise RuntimeError('half\\ninstalled')\n")
    command = [sys.executable, "-c", TRY_IMPORTS, "json", "broken", "no_such_module"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == "broken (half installed)\nno_such_module (No module named 'no_such_module')\n"


@pytest.mark.parametrize(
    ("present", "home", "code", "about"),
    [
        ([], None, "program-missing", "--djl-home"),
        ([], Path("/nowhere"), "djl-home-wrong", "/nowhere"),
        (["djl-serving"], None, "program-missing", "JAVA_HOME"),
        (["djl-serving", "java"], None, "handler-modules-missing", "PIL (No module named 'PIL'), peft (x)"),
    ],
)
def test_what_is_missing_is_told_in_one_line(
    programs: Programs,
    make_setup: Callable[..., Setup],
    monkeypatch: pytest.MonkeyPatch,
    present: list[str],
    home: Path | None,
    code: str,
    about: str,
) -> None:
    """Each check of a DJL Serving names the missing program or module, and its source."""
    for name in present:
        programs.install(name, {})
    bare = programs.install("bare", {"-c": {"out": "PIL (No module named 'PIL')\npeft (x)\n"}})
    monkeypatch.setenv("PYTHON_EXECUTABLE", str(bare))
    with refused(code, kind=EngineError) as caught:
        DjlEngine(home).check(make_setup())
    assert about in str(caught.value)
    assert "\n" not in str(caught.value)
