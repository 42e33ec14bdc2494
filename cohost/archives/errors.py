"""The base of all errors of the project, the errors of this folder, and the faults that `verify` reports.

The base of all errors is in `cohost/archives` because the Lambda function contains no other code of cohost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence


class CodedError(Exception):
    """An error that the user can correct, with a text of one line: `field: problem; allowed: …; fix: …`.

    `code` is stable between versions: scripts and tests compare it, and docs/errors.md lists it. `field` names the
    faulty part: a key of the catalog, an option, a file, a resource. `allowed` and `fix` are empty if `problem` already
    contains their content.
    """

    def __init__(self, code: str, field: str, problem: str, *, allowed: str = "", fix: str = "") -> None:
        self.code, self.field, self.problem, self.allowed, self.fix = code, field, problem, allowed, fix
        text = f"{field}: {problem}" if field else problem
        super().__init__(text + (f"; allowed: {allowed}" if allowed else "") + (f"; fix: {fix}" if fix else ""))

    def entries(self) -> list[dict[str, Any]]:
        """Return the error in the form of `--json`: a list with one mapping per fault."""
        parts = {"code": self.code, "field": self.field, "problem": self.problem}
        return [{**parts, "allowed": self.allowed, "fix": self.fix, "message": str(self)}]


class ArtifactError(CodedError):
    """An error of an archive, of its properties or of the model store in S3."""


class GatheredError(CodedError):
    """An error that gathers several errors in their order; its attributes are those of the first error."""

    separator = "\n"

    def __init__(self, faults: Sequence[CodedError]) -> None:
        self.faults = tuple(faults)
        first = self.faults[0]
        super().__init__(first.code, first.field, first.problem, allowed=first.allowed, fix=first.fix)

    def __str__(self) -> str:
        """Return the texts of all gathered errors, joined by `separator`."""
        return self.separator.join(map(str, self.faults))

    def entries(self) -> list[dict[str, Any]]:
        """Return one mapping per gathered error, in the form of `--json`."""
        return [entry for fault in self.faults for entry in fault.entries()]


class RequestError(GatheredError, ArtifactError):
    """The faults of one CloudFormation request, in one line, because CloudFormation shows one line per failure."""

    separator = " | "


class MissingBucketError(ArtifactError):
    """The S3 bucket does not exist, or has been deleted."""


class OccupiedError(ArtifactError):
    """The S3 key to write already has an object with other content."""


def unknown_request(kind: object) -> ArtifactError:
    """Return the error for a RequestType other than CloudFormation's Create, Update and Delete."""
    return ArtifactError(
        "request-type", "RequestType", f"got {kind!a}", allowed="Create, Update, Delete", fix="send one of these"
    )


Severity = Literal["error", "warning"]

_SHOWN = 5


@dataclass(frozen=True)
class Fault:
    """One fault of an archive: a constant code, the problem, the fix, and the severity.

    An archive whose faults are all warnings can be served.
    """

    code: str
    message: str
    fix: str
    severity: Severity = "error"


def shown(names: Sequence[str]) -> str:
    """Return escaped names from an archive, joined by commas; after the first five, only the number of the others."""
    text = ", ".join(ascii(name) for name in names[:_SHOWN])
    return text if len(names) <= _SHOWN else f"{text} and {len(names) - _SHOWN} more"
