"""The make targets for tests: repetition of failed tests, random examples, process marks, `.ci/run`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
FAILS_ONCE = """
from pathlib import Path

def test_fails_once():
    seen = Path(__file__).with_name("seen")
    again = seen.exists()
    seen.touch()
    assert again
"""
STEPS = """
from pathlib import Path

steps = []

def test_first():
    steps.append(1)

def test_second():
    assert steps == [1]
    seen = Path(__file__).with_name("seen")
    again = seen.exists()
    seen.touch()
    assert again
"""
FAILS = "def test_fails():\n    assert False\n"
GOES_AWAY = """
from pathlib import Path

seen = Path(__file__).with_name("seen")
if not seen.exists():
    def test_that_goes_away():
        seen.touch()
        assert False

def test_that_stays():
    pass
"""
STOPS = """
import pytest

def test_fails():
    assert False

def test_ends_the_run():
    pytest.exit("no memory", returncode=3)
"""


def started(*command: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRIED_AGAIN"))}
    return subprocess.run(command, cwd=folder, env={**own, **environment}, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with this project's tools and settings for tests."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    process: starts something\n")
    (tmp_path / "tests").mkdir()
    return tmp_path


@pytest.fixture
def twice(project: Path) -> Callable[[str], tuple[subprocess.CompletedProcess[str], list[str]]]:
    """Run a test file as `.ci/run` does, and return the outcome and the repeated tests."""

    def run(text: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        (project / "tests" / "test_it.py").write_text(text)
        told = project / "told"
        done = started(
            sys.executable, "tools/failed_tests.py", "-m", "", "tests", folder=project, TRIED_AGAIN=str(told)
        )
        return done, told.read_text().splitlines() if told.exists() else []

    return run


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        (FAILS_ONCE, 0, ["tests/test_it.py::test_fails_once: passed the second time"]),
        (STEPS, 0, ["tests/test_it.py::test_second: passed the second time"]),
        (FAILS, 1, ["tests/test_it.py::test_fails: failed again"]),
        (GOES_AWAY, 1, ["tests/test_it.py::test_that_goes_away: failed again"]),
        (STOPS, 3, []),
    ],
    ids=["by chance", "a step", "a fault", "not there the second time", "stopped"],
)
def test_failed_tests_run_again_by_name(
    text: str, code: int, told: list[str], twice: Callable[[str], tuple[subprocess.CompletedProcess[str], list[str]]]
) -> None:
    """`make test-failed` passes only if each failed test passes in a second run, and names these tests."""
    done, lines = twice(text)
    assert (done.returncode, lines) == (code, told), done.stdout + done.stderr


def test_failed_tests_of_the_last_run_are_taken_up(project: Path) -> None:
    """`make test-failed` without failed tests in the last run has nothing to do and succeeds."""
    (project / "tests" / "test_it.py").write_text(FAILS_ONCE)
    (project / "tests" / "test_gone.py").write_text(FAILS)
    again = (sys.executable, "tools/failed_tests.py")
    none = started(*again, folder=project)
    assert (none.returncode, none.stdout) == (0, "no test failed in the last run here\n")
    assert started(sys.executable, "-m", "pytest", "-q", folder=project).returncode == 1
    (project / "tests" / "test_gone.py").unlink()
    assert started(*again, "tests/test_it.py", folder=project).returncode == 0
    (project / "tests" / "seen").unlink()
    assert started(*again, folder=project).returncode == 1
    assert started(*again, folder=project).returncode == 0
    assert started(*again, folder=project).stdout == none.stdout


def test_what_starts_something_says_so(project: Path) -> None:
    """A test that starts a process without the mark fails, because Python's audit events show the start."""
    shutil.copy(ROOT / "tests" / "unit" / "conftest.py", project / "tests")
    (project / "tests" / "test_it.py").write_text(
        "import asyncio, os, socket, subprocess, sys\n"
        "import pytest\n"
        "@pytest.fixture\n"
        "def port():\n"
        "    with socket.create_server(('127.0.0.1', 0)) as listener:\n"
        "        yield listener\n"
        "def test_server(port): pass\n"
        "def test_process(): subprocess.run([sys.executable, '-c', ''], check=True)\n"
        "@pytest.mark.process\n"
        "def test_marked(port): pass\n"
        "def test_nothing(): asyncio.run(asyncio.sleep(0))\n"
    )
    done = started(sys.executable, "-m", "pytest", "-q", "-rfp", folder=project)
    assert [line for line in done.stdout.splitlines() if line.startswith("PASSED")] == [
        "PASSED tests/test_it.py::test_marked",
        "PASSED tests/test_it.py::test_nothing",
    ]
    assert "test_server: starts a process or listens (socket.bind); allowed here" in done.stdout
    assert "test_process: starts a process or listens (subprocess.Popen); allowed here" in done.stdout


@pytest.fixture
def fuzz(project: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Try random examples in a file of tests."""
    shutil.copy(ROOT / "tests" / "conftest.py", project / "tests")

    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        head = "import time\nfrom hypothesis import given, settings, strategies as st\n@given(st.integers())\n"
        (project / "tests" / "test_it.py").write_text(f"{head}def test_it(number):\n    {text}\n")
        return started(sys.executable, "tools/fuzz.py", "--seconds", "0.5", *options, folder=project)

    return run


def test_a_find_of_random_examples_can_be_tried_again(fuzz: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """A failure of `make fuzz` prints example and seed, and the seed alone repeats it."""
    done = fuzz("assert number < 1000")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "number=1000" in done.stdout
    seed = done.stdout.rpartition("make fuzz FUZZ_SEED=")[2].strip()
    assert f"fuzz: seed {seed}\n" in done.stdout
    again = fuzz("assert number < 1000", "--seed", seed)
    assert again.returncode == 1
    assert again.stdout.count("fuzz: seed") == 1


def test_random_examples_end_with_their_time(fuzz: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """`make fuzz` starts no round after its time, prints the seeds, and does not count a slow test as a failure."""
    done = fuzz("time.sleep(0.01 if number else 0.3)")
    assert done.returncode == 0, done.stdout + done.stderr
    seeds = [line.removeprefix("fuzz: seed ") for line in done.stdout.splitlines() if line.startswith("fuzz: seed ")]
    assert done.stdout.splitlines()[-1] == f"fuzz: nothing found in 0.5 s with the seeds {', '.join(seeds)}"


STEPS_OF_CI = ["test", "check", "examples", "conformance", "fuzz"]


@pytest.mark.parametrize("failing", ["", *STEPS_OF_CI])
def test_ci_ends_at_the_first_step_that_fails(failing: str, tmp_path: Path) -> None:
    """The CI script fails at the first failed step, except for the fuzz, and names at its end what has to be fixed."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    make = tmp_path / "make"
    make.write_text(
        '#!/bin/sh\necho "$1 ${PYTEST_ADDOPTS-none}" >> ran\n'
        'if [ "$1" = test ]; then echo "tests/test_it.py::test_it: passed the second time" >> "$TRIED_AGAIN"; fi\n'
        f'[ "$1" != "{failing}" ]\n'
    )
    make.chmod(0o755)
    done = started(
        tmp_path / ".ci" / "run",
        folder=tmp_path,
        PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        PYTEST_ADDOPTS="-x",
    )
    ran = STEPS_OF_CI[: STEPS_OF_CI.index(failing) + 1] if failing else STEPS_OF_CI
    assert (tmp_path / "ran").read_text().splitlines() == [f"{name} none" for name in ran]
    assert (done.returncode != 0) == (failing not in {"", "fuzz"})
    found = ["make fuzz: found an example, see above for its seed"] if failing == "fuzz" else []
    told = done.stdout.splitlines()
    assert told[told.index("had to be run again, and is to be mended:") + 1 :] == [
        *found,
        "tests/test_it.py::test_it: passed the second time",
    ]
