"""`make compare`: the order of its commands, its failures, and the end of the emulator."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from cohost.catalog_file import load_catalog
from cohost.errors import LocalError
from load_tests.tools import compare_on_this_machine, machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Recorder:
    """Records each command, and returns the exit code that a test has set for its start."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.codes: dict[str, int] = {}
        self.ended = False

    def cdk(self, *arguments: str) -> int:
        """Note a cdk command."""
        return self._note("cdk", *arguments)

    def cohost(self, *arguments: str) -> int:
        """Note a cohost command."""
        return self._note("cohost", *arguments)

    def _note(self, *words: str) -> int:
        self.commands.append(" ".join(words))
        return next((code for start, code in self.codes.items() if self.commands[-1].startswith(start)), 0)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Record the calls instead of starting an emulator."""
    made = Recorder()

    @contextlib.contextmanager
    def running(_: Path) -> Iterator[Recorder]:
        try:
            yield made
        finally:
            made.ended = True

    monkeypatch.setattr(machine, "running", running)
    return made


def test_three_designs_are_deployed_measured_and_compared(recorder: Recorder, tmp_path: Path) -> None:
    """Each design has its own stack and the same load test, and the page comes last."""
    assert compare_on_this_machine.main(["--out", str(tmp_path)]) == 0

    starts = [" ".join(command.split()[:2]) for command in recorder.commands]
    assert starts == ["cohost export-onnx", "cdk bootstrap", "cdk deploy", *["cohost bench"] * 3, "cohost compare"]
    stacks = ("LmiCohostStack", "CpuOnnxStack", "InferenceComponentsStack")
    assert all(stack in recorder.commands[2] for stack in stacks)
    for stack, command in zip(stacks, recorder.commands[3:6], strict=True):
        assert f"--stack {stack} " in command
        assert f"--out {tmp_path / stack}" in command
        assert "--short --mixed-lengths" in command
    assert recorder.commands[6] == f"cohost compare {' '.join(str(tmp_path / s) for s in stacks)} --out {tmp_path}"
    assert recorder.ended


def test_the_first_failure_ends_it(recorder: Recorder, tmp_path: Path) -> None:
    """A failed deploy ends the comparison without a measurement, and stops the emulator."""
    recorder.codes = {"cdk deploy": 7}
    assert compare_on_this_machine.main(["--out", str(tmp_path)]) == 7
    assert recorder.commands[-1].startswith("cdk deploy")
    assert recorder.ended


def test_a_run_that_the_generator_limited_is_shown_all_the_same(recorder: Recorder, tmp_path: Path) -> None:
    """A load test that the generator limited is on the page with a mark."""
    recorder.codes = {"cohost bench": 3}
    assert compare_on_this_machine.main(["--out", str(tmp_path)]) == 0
    assert recorder.commands[-1].startswith("cohost compare")


def test_what_it_deploys_has_all_three_designs() -> None:
    """The deployed catalog has its own endpoint and both comparison designs, with models of this machine's hub."""
    catalog = load_catalog(compare_on_this_machine.CATALOG).catalog
    assert catalog.designs is not None
    assert catalog.designs.cpu_onnx is not None
    assert catalog.designs.inference_components is not None


def test_known_faults_and_ctrl_c_have_their_exit_codes(
    recorder: Recorder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A known error and Ctrl-C give one line on stderr and their exit codes, and stop the emulator."""

    def fails(_: machine.Machine) -> Iterator[int]:
        raise LocalError("port-in-use", "port", "is in use", fix="choose another")
        yield

    def stopped(_: machine.Machine) -> Iterator[int]:
        raise KeyboardInterrupt
        yield

    assert machine.run(tmp_path, fails) == 1
    assert capsys.readouterr().err == "error: port: is in use; fix: choose another\n"
    assert machine.run(tmp_path, stopped) == 130
    assert recorder.ended
