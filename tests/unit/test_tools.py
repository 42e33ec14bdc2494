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
    assert capsys.readouterr().out.startswith("could not be checked: ")
    assert scan.main(["--complete"]) == 1
    assert capsys.readouterr().out.startswith("could not be checked: ")


FAULT = {"name": "left-pad", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
SOUND = {"name": "right-pad", "version": "1.0", "vulns": []}
UNKNOWN = {"name": "other", "skip_reason": "not found"}


CLEAN = "no fault is known"
NOT_CHECKED = "could not be checked: "


def audited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dependencies: list[dict[str, Any]] | None
) -> tuple[int, int, list[str]]:
    """The codes of the check and of `make audit` with this answer of pip-audit, and their lines, which are the same."""
    audit = tool("audit_packages")

    def run(command: list[str], **_: Any) -> Any:
        if dependencies is not None:
            Path(command[command.index("--output") + 1]).write_text(json.dumps({"dependencies": dependencies}))
        return subprocess.CompletedProcess(command, 1, stdout="", stderr="trace\nthe network is down")

    monkeypatch.setattr(audit.subprocess, "run", run)
    code, lines = audit.main([]), capsys.readouterr().out.splitlines()
    complete = audit.main(["--complete"])
    assert capsys.readouterr().out.splitlines() == lines
    return code, complete, lines


@pytest.mark.parametrize(
    ("dependencies", "codes"),
    [
        ([FAULT, SOUND], (1, 1)),
        ([FAULT, UNKNOWN], (1, 1)),
        ([SOUND], (0, 0)),
        ([SOUND, UNKNOWN], (0, 1)),
        ([UNKNOWN], (0, 1)),
        ([], (0, 1)),
        (None, (0, 1)),
    ],
)
def test_only_a_whole_audit_says_that_no_fault_is_known(
    dependencies: list[dict[str, Any]] | None,
    codes: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The check may pass offline, but never in the words of a clean result, and `make audit` then fails."""
    *found, lines = audited(monkeypatch, capsys, dependencies)
    whole = bool(dependencies) and UNKNOWN not in (dependencies or [])
    assert tuple(found) == codes
    assert any(line.startswith(NOT_CHECKED) for line in lines) is not whole
    assert any(CLEAN in line for line in lines) is (codes == (0, 0))


@pytest.mark.parametrize(
    ("dependencies", "line"),
    [
        ([FAULT, SOUND], "packages: left-pad 1.0 has PYSEC-1; fix: 1.1, then make lock"),
        ([SOUND, UNKNOWN], "packages: 1 of 2 were checked"),
        (None, "could not be checked: known faults of packages: the network is down; make audit fails until they are"),
    ],
)
def test_the_audit_names_what_it_found_and_what_not(
    dependencies: list[dict[str, Any]] | None,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A fault has the version that mends it; a service that cannot be reached has its reason."""
    assert line in audited(monkeypatch, capsys, dependencies)[2]


def test_service_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The check ends within a minute if the service hangs."""
    audit = tool("audit_packages")

    def run(command: list[str], timeout: float, **_: Any) -> Any:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(audit.subprocess, "run", run)
    assert audit.main([]) == 0
    assert "no answer of the advisory service within 30 seconds" in capsys.readouterr().out
    assert audit.main(["--complete"]) == 1


def test_make_audit_asks_for_the_whole_audit() -> None:
    """`make audit` is the one that fails if something could not be checked; `make check` runs offline."""
    lines = Path("Makefile").read_text(encoding="utf-8").splitlines()
    for name in ("scan_secrets", "audit_packages"):
        assert f"\tpython tools/{name}.py --complete" in lines


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
