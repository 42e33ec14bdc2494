"""The recorded sequences of dying, hanging and unloaded workers, with their files and processes.

They lie in tests/data/djl_lifecycle, the schema of their steps in 00_index.json there.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmi_replay import HUB, WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_scenarios import Instead

LIFECYCLE = Path(__file__).parents[3] / "data" / "djl_lifecycle"
LONGEST_S = 20.0  # the clock of a sequence is chosen so that it takes about this long


@dataclass(frozen=True)
class Sequence:
    """The steps of a sequence by their index in the recording, from the start of a server on."""

    file: str
    title: str
    steps: Mapping[int, dict[str, Any]]

    @property
    def number(self) -> str:
        """Return a short name: the number of the recording and of its first step."""
        return f"{self.file[:2]}-{min(self.steps)}"

    @property
    def takes_s(self) -> float:
        """Return the recorded duration in seconds."""
        return float(max(step.get("at_s") or 0 for step in self.steps.values()))

    @property
    def speed(self) -> float:
        """Return the factor by which the replay is faster than the recording."""
        return max(1.0, self.takes_s / LONGEST_S)

    def of(self, entries: Mapping[str, Mapping[int, Instead]]) -> dict[int, Instead]:
        """Return the entries by recording and step that are about this sequence."""
        return {index: entry for index, entry in entries.get(self.file, {}).items() if index in self.steps}

    @property
    def exchanges(self) -> list[int]:
        """Return the indices of the HTTP exchanges."""
        return [index for index, step in self.steps.items() if "action" not in step]


def sequences(file: str) -> list[Sequence]:
    """Return the sequences of a recording in order."""
    steps: dict[str, dict[int, dict[str, Any]]] = {}
    for index, step in enumerate(json.loads((LIFECYCLE / file).read_text())["vectors"]):
        steps.setdefault(step["sequence"], {})[index] = step
    return [Sequence(file, title, of_title) for title, of_title in steps.items()]


class LifecycleFixture:
    """The model folders that the recordings name, below `root`."""

    def __init__(self, root: Path) -> None:
        self.root, self.models, self.weights = root, root / "models", root / "weights"
        self.weights.mkdir(parents=True)
        for name, ours in WEIGHTS.items():
            (self.weights / name).symlink_to(HUB / ours)
        shutil.copytree(LIFECYCLE / "models", self.models)
        for file in self.models.glob("*/serving.properties"):
            file.write_text(self.fill(file.read_text(), root))

    def fill(self, text: str, store: Path) -> str:
        """Return a recorded text with filled placeholders."""
        for name, folder in (("MODEL_DIR", self.models), ("WEIGHTS_DIR", self.weights), ("MODEL_STORE", store)):
            text = text.replace(f"{{{name}}}", str(folder))
        return text

    def store(self, sequence: Sequence, folders: list[str]) -> Path:
        """Create a model store whose folders each have the synchronous echo model."""
        store = self.root / "stores" / sequence.number
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir(parents=True)
        for folder in folders:
            shutil.copytree(self.models / "d_sync", store / folder)
        return store


@dataclass
class Labels:
    """The process for each label of a recording (P1, P2 and so on), learnt from the counts of a sequence."""

    pids: dict[str, int] = field(default_factory=dict)

    def compare(self, recorded: Mapping[str, list[str]], running: Mapping[str, list[int]]) -> str | None:
        """Compare the processes of each folder with the recorded labels, and return the difference as text.

        A label that is new stands for the processes that no label stood for before.
        """
        counts = {folder: len(labels) for folder, labels in recorded.items()}
        found = {folder: len(pids) for folder, pids in running.items()}
        if counts != found:
            return f"worker processes {found}, recorded {counts}"
        learnt: dict[str, int] = {}
        for folder, labels in recorded.items():
            known = {self.pids[label] for label in labels if label in self.pids}
            others = [pid for pid in running[folder] if pid not in self.pids.values()]
            new = [label for label in labels if label not in self.pids]
            if not known <= set(running[folder]) or len(others) != len(new):
                return f"{folder}: processes {running[folder]}, recorded {labels} of {self.pids}"
            learnt |= dict(zip(new, others, strict=True))
        self.pids |= learnt
        return None


def as_told(code: int) -> int:
    """Return an exit code as a shell shows it: signal N is 128 + N."""
    return 128 - code if code < 0 else code


def lives(pid: int) -> bool:
    """Return True if a process runs; an ended process whose parent has not waited for it does not run."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
