"""The error of this folder, and the faults that `verify` reports.

They stand here because the Lambda function carries no other code of cohost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArtifactError(Exception):
    """An error of an archive, of its properties or of the store; the text is one line and names the fix."""


Severity = Literal["error", "warning"]

_SHOWN = 5


@dataclass(frozen=True)
class Fault:
    """One fault of an archive: a constant code, the problem, the fix, and the severity; a warning can be served."""

    code: str
    message: str
    fix: str
    severity: Severity = "error"


def shown(names: Sequence[str]) -> str:
    """Return names from an archive, escaped for printing; a long list is cut short."""
    text = ", ".join(ascii(name) for name in names[:_SHOWN])
    return text if len(names) <= _SHOWN else f"{text} and {len(names) - _SHOWN} more"
