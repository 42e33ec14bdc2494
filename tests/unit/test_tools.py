"""The tools of `make check`: secrets, vulnerable packages, duplicate code."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]


def tool(name: str) -> ModuleType:
    """A module of the tools' folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, Path]:
    """Scan a temporary checkout with the project's baseline."""
    scan = tool("scan_secrets")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)  # noqa: S607 - whichever git the user has
    monkeypatch.setattr(scan, "ROOT", tmp_path)
    return scan, tmp_path


def add(folder: Path, name: str, text: str) -> None:
    """A tracked file."""
    (folder / name).write_text(text)
    subprocess.run(["git", "add", name], cwd=folder, check=True)  # noqa: S607 - whichever git the user has


@pytest.mark.process
def test_secret_in_a_tracked_file_is_found(
    checkout: tuple[ModuleType, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A found secret is reported by file, line and kind with the fix, and not printed."""
    scan, folder = checkout
    key = "AKIA" + "QYLPMN5HHHFPZAM2"
    add(folder, "settings.py", f'\nACCESS = "{key}"\n')
    assert scan.main([]) == 1
    told = capsys.readouterr().out
    assert "settings.py:2: looks like a secret (AWS Access Key)" in told
    assert key not in told


@pytest.mark.process
def test_revisions_of_models_are_no_secrets(checkout: tuple[ModuleType, Path]) -> None:
    """Revisions in a catalog are not reported as secrets."""
    scan, folder = checkout
    add(folder, "catalog.yaml", "models:\n  nli:\n    revision: b5113eb38ab63efdd7f280f8c144ea8b13f978ce\n")
    assert scan.main([]) == 0


@pytest.mark.process
def test_without_git_it_is_said_that_nothing_was_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without git the scan prints that nothing was scanned, and succeeds."""
    scan = tool("scan_secrets")
    monkeypatch.setattr(scan, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert scan.main([]) == 0
    assert "could not be checked" in capsys.readouterr().out


FAULT = {"name": "left-pad", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
SOUND = {"name": "right-pad", "version": "1.0", "vulns": []}
UNKNOWN = {"name": "other", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("dependencies", "code", "text"),
    [
        ([FAULT, SOUND], 1, "left-pad 1.0 has PYSEC-1; fix: 1.1, then make lock"),
        ([SOUND, UNKNOWN], 0, "no fault is known of 1 of 2"),
        ([UNKNOWN], 0, "could not be checked for known faults"),
        (None, 0, "could not be checked for known faults: the network is down"),
    ],
)
def test_known_faults_fail_and_silence_is_told(
    dependencies: list[dict[str, Any]] | None,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A vulnerable package fails the check with the fixed version, and a missing service is reported."""
    audit = tool("audit_packages")

    def run(command: list[str], **_: Any) -> Any:
        if dependencies is not None:
            Path(command[command.index("--output") + 1]).write_text(json.dumps({"dependencies": dependencies}))
        return subprocess.CompletedProcess(command, 1, stdout="", stderr="trace\nthe network is down")

    monkeypatch.setattr(audit.subprocess, "run", run)
    assert audit.main() == code
    assert text in capsys.readouterr().out


def test_service_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The check ends within a minute if the service hangs."""
    audit = tool("audit_packages")

    def run(command: list[str], timeout: float, **_: Any) -> Any:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(audit.subprocess, "run", run)
    assert audit.main() == 0
    assert "no answer of the advisory service within 30 seconds" in capsys.readouterr().out


LONG = """
def {name}(folder, {given}):
    \"\"\"{text}.\"\"\"
    {found} = [path for path in folder.rglob("{text}") if path.is_file()]
    for one in {found}:
        one.rename(one.with_suffix("{text}"))
    return sorted({found}, key=lambda one: one.stat().st_size)
"""


def test_code_that_stands_twice_is_found_whatever_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copied code is found despite other names of variables and other texts; an exception needs an existing pair."""
    duplicates = tool("duplicate_code")
    monkeypatch.setattr(duplicates, "ROOT", tmp_path)
    monkeypatch.setattr(duplicates, "EXCEPTIONS", {})
    (tmp_path / "tools").mkdir()
    one, other = tmp_path / "tools" / "one.py", tmp_path / "tools" / "other.py"
    one.write_text(LONG.format(name="move", given="", found="paths", text="a"))
    other.write_text(LONG.format(name="rename", given="x=1", found="files", text="b"))
    assert duplicates.main() == 1
    assert "tools/one.py:4-6 and tools/other.py:4-6 are alike" in capsys.readouterr().out

    monkeypatch.setattr(duplicates, "EXCEPTIONS", {("tools/one.py:move", "tools/other.py:rename"): "a reason"})
    assert duplicates.main() == 0
    other.write_text(other.read_text().replace("is_file", "is_dir").replace("rename(one", "replace(one"))
    assert duplicates.main() == 1
    assert "not alike any more" in capsys.readouterr().out
