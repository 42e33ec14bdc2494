"""`cohost report` and `cohost bench`, without a load."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

import pytest
from fakes.refusals import refused
from report_runs import table_run
from typer.testing import CliRunner

from cohost import cli
from cohost.commands import report as cli_report
from cohost.errors import BenchError, PackagesError
from cohost.report.run import Mark, save_run

if TYPE_CHECKING:
    from pathlib import Path

    from click import Result


def run(*arguments: str) -> Result:
    """Run the command in this process; an unexpected exception fails the test."""
    return CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


class Ended:
    """A process that ended well at once."""

    returncode = 0

    def __enter__(self) -> Self:
        """Start nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for nothing."""

    def poll(self) -> int:
        """The exit code."""
        return self.returncode


def test_report_writes_all_its_files_and_prints_the_table(tmp_path: Path) -> None:
    """`cohost report` writes all files of the report from raw samples, and prints the table."""
    save_run(table_run(tmp_path / "run"))

    result = run("report", str(tmp_path / "run"), "--no-metrics")

    assert result.exit_code == 0
    assert "LMI <one GPU>, ml.g5.xlarge" in result.stdout
    names = {file.name for file in (tmp_path / "run" / "report").iterdir()}
    assert names == {"report.md", "report.json", "report.schema.json", "report.html"}


def test_report_as_json_is_data(tmp_path: Path) -> None:
    """A script reads several runs at once, wherever the files go."""
    for name in ("a", "b"):
        save_run(table_run(tmp_path / name))

    result = run(
        "report", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "c"), "--no-metrics", "--json"
    )

    assert len(json.loads(result.stdout)["runs"]) == 2
    assert (tmp_path / "c" / "report.html").is_file()


def test_report_of_an_invalid_run_says_so(tmp_path: Path) -> None:
    """The table's title and a separate line say that the load test is invalid."""
    mark = Mark(code="generator-cpu", message="the generator used 99 % of its core", invalid=True)
    save_run(table_run(tmp_path / "run", marks=(mark,)))

    result = run("report", str(tmp_path / "run"), "--no-metrics")

    assert "LMI <one GPU> (INVALID)" in result.stdout
    assert "INVALID: the generator used 99 % of its core" in result.stderr


@pytest.mark.parametrize("command", ["report", "compare"])
def test_a_mistyped_folder_is_a_fault_in_json_too(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong folder gives an error with code and file also with --json."""
    monkeypatch.setattr(sys, "argv", ["cohost", command, str(tmp_path), "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert (error["code"], error["field"]) == ("result-unreadable", str(tmp_path / "run.json"))


def test_bench_runs_the_standard_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cohost bench` runs warm-up, batch sizes and callers, and returns Locust's exit code."""
    seen: list[list[str]] = []

    def fake(arguments: list[str], folder: Path) -> tuple[int, bool]:
        seen.append(arguments)
        save_run(table_run(folder))
        return 3, False

    monkeypatch.setattr(cli_report, "_run", fake)
    result = run("bench", "--host", "http://127.0.0.1:9", "--out", str(tmp_path / "run"), "--price", "0")

    assert result.exit_code == 3
    text = " ".join(seen[0])
    assert "--headless" in text
    assert "--sweep-batch 1,2,4,8,16,32 --sweep-concurrency 1,2,4,8 --measure 20 --warmup 10" in text
    assert "--host http://127.0.0.1:9" in text
    assert "--price 0.0" in text
    assert "--pad-to-max" in text
    assert (tmp_path / "run" / "report" / "report.html").is_file()


@pytest.mark.parametrize(("interrupted", "code"), [(True, 130), (False, 1)])
def test_bench_that_measured_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interrupted: bool,  # noqa: FBT001 - a parameter of the test
    code: int,
) -> None:
    """Ctrl-C before any result is no error, and an end without a result is one."""
    monkeypatch.setattr(cli_report, "_run", lambda *_: (code, interrupted))
    if interrupted:
        assert run("bench", "--out", str(tmp_path / "run")).exit_code == code
    else:
        with refused("nothing-measured", str(tmp_path / "run"), kind=BenchError):
            run("bench", "--out", str(tmp_path / "run"))


def test_ctrl_c_before_the_load_has_begun_is_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is handled from the start of the signal handler on."""
    install = signal.signal

    def interrupted(number: signal.Signals, handler: Any) -> Any:
        monkeypatch.setattr(signal, "signal", install)
        previous = install(number, handler)
        signal.raise_signal(number)
        return previous

    monkeypatch.setattr(signal, "signal", interrupted)
    monkeypatch.setattr(cli_report, "_locustfile", lambda: tmp_path / "encoders.py")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Ended())

    assert run("bench", "--out", str(tmp_path / "run")).exit_code == 130


def test_without_the_load_group_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deploy machine has neither numpy nor Locust."""
    found = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name in {"locust", "numpy"} else found(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)

    for command in (["bench", "--out"], ["report"]):
        with refused("packages-missing", kind=PackagesError) as caught:
            run(*command, str(tmp_path))
        assert "--group load" in caught.value.fix


def test_faults_of_locust_are_shown_without_its_log(tmp_path: Path) -> None:
    """An error of Locust is shown by its error line, or else by its last lines."""
    log = tmp_path / "locust.log"
    log.write_text("[x] INFO: a\nlocust: error: argument --rate: 'x'\n[x] INFO: b\n")
    assert cli_report._faults(log) == ["locust: error: argument --rate: 'x'"]
    log.write_text("a\nb\nc\nd\n")
    assert cli_report._faults(log) == ["b", "c", "d"]
