"""The log file of an instance: its container's output, and lines of the platform between them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class InstanceLog:
    """Appends to the file that the container's output goes to; both only ever append whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, text: str) -> None:
        """Write one line, `<UTC time> sagemaker <text>`; line ends within the text become blanks."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{now} sagemaker {' '.join(text.split())}\n")
