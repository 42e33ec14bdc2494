"""Define the errors that callers of cohost can expect, in one class hierarchy.

CohostError              base of all these errors: the user can correct the cause, as the error's text describes
├── CatalogError         the catalog file has faults
├── InvalidValueError    a key of the catalog, or an option, has a value that is not allowed
├── ImageError           an image reference cannot be read, or does not fit the region or the task
├── RoutingError         a call names a model, or a way of addressing one, that the endpoint does not have
├── InvocationError      the endpoint answered a call with an error
│   ├── ModelNotReadyError   the model is still loading
│   ├── WorkerStoppedError   the model's worker process has ended
│   └── NoCapacityError      no copy of the models is running: scaled to zero, or still starting
├── StackError           the stack does not exist, or is in a state that the command cannot work with
│   ├── MissingStackError    CloudFormation has no stack of this name
│   └── UnderWayError        an earlier change of the inference component is still in progress
├── PackagesError        a command needs Python packages that are not installed
├── LocalError           the AWS emulator on this machine cannot be started, stopped or reached
├── PlanError            a model's files cannot be read, or the plan needs a figure that is not known
├── HubAccessError       the Hugging Face Hub refuses a model, does not have it, or cannot be reached
├── PriceError           a price list cannot be read, fetched or written, or a cost cannot be computed
├── SimulationError      a trace, a traffic pattern or a setting cannot be replayed
│   └── SimulationFaultsError   several SimulationErrors at once
├── WeightsError         weights cannot be downloaded, fail a check, or cannot be stored
├── OnnxError            a model cannot be exported, or an archive is not the expected one
├── CleanupError         a resource could not be removed, or did not reach a final state in time
├── ReportError          a folder holds no load test results that this version can read
├── BenchError           the load test could not be run, or measured nothing
└── LoadError            an option of the load test cannot be used (load_tests/__init__.py)

The errors of `cohost/archives` have another base, `cohost.archives.errors.ArtifactError`, because that folder is also
the code of an AWS Lambda function, which does not contain the rest of cohost.

Each error is a `CodedError`: a stable code, and one line that names the field, the problem, allowed values and the fix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

from cohost.archives.errors import CodedError, GatheredError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from botocore.exceptions import ClientError


def reason_of(error: ClientError) -> str:
    """Return the AWS service's message from a boto3 ClientError, without the words that boto3 adds."""
    return str(error.response["Error"].get("Message", error))


class CohostError(CodedError):
    """An error that the user can correct; its text contains the whole explanation."""


class CatalogError(CohostError):
    """A catalog has faults; `code`, `field` and `problem` are those of the first fault, and `further` has the others.

    For a catalog that was not read from a file, `file` is empty and `line` is 0.
    """

    def __init__(
        self,
        code: str,
        field: str,
        problem: str,
        *,
        allowed: str = "",
        fix: str = "",
        file: str = "",
        line: int = 0,
    ) -> None:
        super().__init__(code, field, problem, allowed=allowed, fix=fix)
        self.file, self.line = file, line
        self.further: tuple[CatalogError, ...] = ()

    @classmethod
    def gathered(cls, faults: Sequence[CatalogError]) -> CatalogError:
        """Return one error that contains all these faults in the given order."""
        first, *further = faults
        first.further = tuple(further)
        return first

    def __str__(self) -> str:
        """Return all lines of `faults` as one text, separated by line feeds."""
        return "\n".join(self.faults)

    @property
    def faults(self) -> tuple[str, ...]:
        """Return one line of text per fault; the line begins with `file:line:` if the catalog was read from a file."""
        own = super().__str__()
        return (f"{self.file}:{self.line}: {own}" if self.file else own, *map(str, self.further))

    def entries(self) -> list[dict[str, Any]]:
        """Return one mapping per fault, for `--json`; it has `file` and `line` if the catalog is from a file."""
        place = {"file": self.file, "line": self.line} if self.file else {}
        own = {**super().entries()[0], "message": self.faults[0], **place}
        return [own, *(entry for fault in self.further for entry in fault.entries())]


class InvalidValueError(CohostError, ValueError):
    """A catalog key or an option does not accept a value; `field` is empty until a caller that knows it fills it in."""


def refuse(code: str, problem: str, *, allowed: str = "", fix: str = "") -> NoReturn:
    """Reject the value of a catalog key or an option.

    Raises:
        InvalidValueError: always, with an empty `field`.
    """
    raise InvalidValueError(code, "", problem, allowed=allowed, fix=fix)


class ImageError(CohostError):
    """An image reference cannot be read, or does not fit the region or the task."""


class RoutingError(CohostError):
    """A call names a model, or a way of addressing a model, that the endpoint does not have; no request was sent."""


class InvocationError(CohostError):
    """The endpoint answered a call with an error.

    `status` is the HTTP status and `aws_code` is AWS's error code; each is None if the answer had none.
    """

    def __init__(
        self, *parts: str, status: int | None = None, aws_code: str | None = None, **allowed_and_fix: str
    ) -> None:
        self.status, self.aws_code = status, aws_code
        super().__init__(*parts, **allowed_and_fix)

    def but(self, problem: str, *, fix: str | None = None) -> Self:
        """Return a copy of the error with another `problem`, and with another `fix` if that is not None."""
        rest = {"allowed": self.allowed, "fix": self.fix if fix is None else fix}
        return type(self)(self.code, self.field, problem, status=self.status, aws_code=self.aws_code, **rest)


class ModelNotReadyError(InvocationError):
    """The model is still loading; a later retry can succeed."""


class WorkerStoppedError(InvocationError):
    """The model's worker process ended before the call reached it; a retry succeeds after the server restarted it."""


class NoCapacityError(InvocationError):
    """No copy of the inference component is running: scaled to zero, or starting. Retry in some minutes."""


class StackError(CohostError):
    """A CloudFormation stack or one of its outputs does not exist, or the stack's state does not allow the command."""


class MissingStackError(StackError):
    """CloudFormation has no stack of the given name."""


class UnderWayError(StackError):
    """A change of the inference component is in progress; until its end SageMaker accepts no other change."""


class LocalError(CohostError):
    """The AWS emulator on this machine cannot be started, stopped or reached."""


class PackagesError(CohostError):
    """A command needs Python packages that are not installed on this machine."""


class PlanError(CohostError):
    """A model's shape or weights cannot be read, or a memory plan or fleet plan needs a figure that is not known."""


class HubAccessError(CohostError):
    """The Hugging Face Hub refuses a model, does not have it, or cannot be reached."""


class PriceError(CohostError):
    """A price list cannot be read, fetched or written, or a cost cannot be computed from the given values."""


class CleanupError(CohostError):
    """An AWS resource could not be removed, or did not reach a final state in time; the text names the next step."""


class OnnxError(CohostError):
    """A model cannot be exported to ONNX, the export is too inaccurate, or an exported archive is not as expected."""


class BenchError(CohostError):
    """The load test could not be run, or measured nothing."""


class ReportError(CohostError):
    """A folder has no results of a load test, or has results that this version cannot read."""


class SimulationError(CohostError):
    """The simulation cannot replay a trace, a traffic pattern or a setting."""


class SimulationFaultsError(GatheredError, SimulationError):
    """A simulation's trace or settings have several faults."""


class WeightsError(CohostError):
    """A model's weights cannot be downloaded, fail a check, or cannot be stored in S3."""
