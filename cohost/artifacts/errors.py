"""The fault of this folder; it stands alone because the Lambda function carries no other code of cohost.

What `verify` reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArtifactError(Exception):
    """An archive, its properties or their store is not as it must be; the text is one line and holds the fix."""


Severity = Literal["error", "warning"]

_SHOWN = 5


@dataclass(frozen=True)
class Fault:
    """One fault of an archive: a short constant code, what is wrong, what to do, and whether it can be served so."""

    code: str
    message: str
    fix: str
    severity: Severity = "error"


def shown(names: Sequence[str]) -> str:
    """Names from an archive, safe to print, a long list cut short."""
    text = ", ".join(ascii(name) for name in names[:_SHOWN])
    return text if len(names) <= _SHOWN else f"{text} and {len(names) - _SHOWN} more"
