"""The errors that callers of cohost can expect, in one family.

CohostError              base of all: the user can correct the cause, and the text says how
├── CatalogError         the catalog file has faults
├── ImageError           an image reference is unknown, or does not fit the backend or the region
├── RoutingError         a call names a model, or a way of addressing one, that the endpoint does not have
├── InvocationError      the endpoint answered a call with an error
│   ├── ModelNotReadyError   the model is still loading
│   ├── WorkerStoppedError   the model's worker process has ended
│   └── NoCapacityError      no copy of the models is running: scaled to zero, or still starting
├── StackError           the stack does not exist, or is in a state that the command cannot work with
│   ├── MissingStackError    CloudFormation has no stack of this name
│   └── UnderWayError        an earlier change of the component is still in progress (cohost/endpoint/copies.py)
├── LocalError           the AWS emulator on this machine cannot be started, stopped or reached
├── PlanError            a model's files cannot be read, or the plan needs a figure that is not known
├── HubAccessError      the Hub does not give a model: refused, not there, or out of reach
├── PriceError           a price list cannot be read, fetched or written (cohost/forecast/pricing/price_list.py)
├── SimulationError      a trace, a traffic pattern or a setting cannot be replayed
├── WeightsError         weights cannot be downloaded, fail a check, or cannot be stored
├── OnnxError            a model cannot be exported, or an archive is not the expected one
├── CleanupError         a resource could not be removed, or did not reach a final state in time
├── ReportError          a folder holds no load test results that this version can read
├── BenchError           a comparison's load test cannot be run, or measured nothing (cohost/commands/report.py)
└── LoadError            an option of the load test cannot be used (load_tests/__init__.py)

The archives have their own base, `cohost.archives.errors.ArtifactError`: that folder is also the code of an AWS Lambda
function, without the rest of cohost.

Each is a `CodedError`: a stable code, and one line that names the field, the value, what is allowed and the fix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohost.archives.errors import CodedError

if TYPE_CHECKING:
    from collections.abc import Sequence


class CohostError(CodedError):
    """An error that the user can correct; its text is the whole explanation."""


class CatalogError(CohostError):
    """A catalog file has faults. `faults` holds one line per fault, in the order of the file."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


class ImageError(CohostError):
    """An image reference cannot be read, or does not fit the region or the task."""


class RoutingError(CohostError):
    """A call names a model, or a way of addressing one, that the endpoint does not have. No request was sent."""


class InvocationError(CohostError):
    """The endpoint answered a call with an error.

    `status` is the HTTP status and `aws_code` AWS's own error code; each is None if there was none.
    """

    def __init__(
        self,
        code: str,
        field: str = "",
        problem: str = "",
        *,
        allowed: str = "",
        fix: str = "",
        status: int | None = None,
        aws_code: str | None = None,
    ) -> None:
        self.status = status
        self.aws_code = aws_code
        super().__init__(code, field, problem, allowed=allowed, fix=fix)


class ModelNotReadyError(InvocationError):
    """The model is still loading; a later retry can succeed."""


class WorkerStoppedError(InvocationError):
    """The model's process has ended before the call reached it; a retry succeeds once the server has restarted it."""


class NoCapacityError(InvocationError):
    """No copy of the models is running: scaled to zero, or still starting. A retry in some minutes can succeed."""


class StackError(CohostError):
    """The stack or one of its outputs does not exist, or its state does not allow the command."""


class MissingStackError(StackError):
    """CloudFormation has no stack of this name."""


class LocalError(CohostError):
    """The AWS emulator on this machine cannot be started, stopped or reached."""


class PlanError(CohostError):
    """A model's shape or weights cannot be read, or the plan needs a figure that is not known."""


class HubAccessError(CohostError):
    """The Hugging Face Hub refuses a model, does not have it, or cannot be reached."""


class CleanupError(CohostError):
    """A resource could not be removed, or did not reach a final state in time; the text names the next step."""


class OnnxError(CohostError):
    """A model cannot be exported, its export is too inaccurate, or an archive is not the expected one."""


class ReportError(CohostError):
    """A folder holds no results of a load test, or results that this version cannot read."""


class SimulationError(CohostError):
    """A trace, a traffic pattern or a setting cannot be replayed."""


class WeightsError(CohostError):
    """Weights cannot be downloaded, fail a check, or cannot be stored."""
