"""The metrics of instances that share one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psutil

from local_aws.kit.clock import Clock
from local_aws.sagemaker.telemetry.metrics import InstanceUtilization, MachineUtilization

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Desk:
    """A test clock, a machine that was half busy, and the reported values."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.asked = self.time
        self.reported: list[tuple[str, float]] = []

    def now(self) -> float:
        """The time in seconds."""
        return self.time

    def cpu_percent(self, *, percpu: bool) -> list[float]:
        """Return the use of two cores since the last question."""
        assert percpu
        passed, self.asked = self.time > self.asked, self.time
        return [50.0, 25.0] if passed else [0.0, 0.0]

    def count(self, name: str, value: float, *, namespace: str) -> None:
        """A variant's meter."""
        assert namespace == "/aws/sagemaker/Endpoints"
        self.reported.append((name, value))


def test_every_variant_reports_the_use_of_the_same_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All variants report one measurement of the machine, because a second would show it idle."""
    desk = Desk()
    monkeypatch.setattr(psutil, "cpu_percent", desk.cpu_percent)
    machine = MachineUtilization(tmp_path, now=desk.now)
    meter: Any = desk
    variants = [InstanceUtilization(meter, Clock(machine=desk.now), machine) for _ in range(3)]
    for _ in range(2):
        desk.time += 60
        for variant in variants:
            variant.report(1)
    assert [value for name, value in desk.reported if name == "CPUUtilization"] == [75.0] * 6
