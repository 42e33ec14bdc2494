"""The errors that callers of cohost can expect, in one family.

CohostError
├── CatalogError      the YAML of the models is wrong
├── ImageError        an image reference, its backend or its region does not fit
├── RoutingError      a call names a model or a way of addressing that the endpoint does not have
├── InvocationError   the endpoint answered with an error
│   ├── ModelNotReadyError   the model is still being loaded
│   ├── WorkerStoppedError   the model's process has ended, and the server answers in its place
│   └── NoCapacityError      no copy of the models runs: scaled to zero, or not up yet
├── StackError        the stack is not there, or not in a state that the command needs
├── LocalError        the AWS on this machine cannot start, stop or be reached
├── PlanError         a model's shape or a plan's numbers do not fit (cohost/errors.py)
├── PriceError        a price list cannot be read or renewed (cohost/forecast/pricing/price_list.py)
└── OnnxError         a model cannot be exported, or its archive is not the one asked for (cohost/errors.py)

The archives' own fault is `cohost.artifacts.errors.ArtifactError`, since that folder stands by itself.

Each message is one line that names the field, the value, what is allowed and the fix.

CohostError
└── PlanError      a model's shape or weights cannot be read, or a plan is asked for that nothing is known for
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class CohostError(Exception):
    """A fault that the user can mend; its text is the whole explanation."""


class CatalogError(CohostError):
    """A catalog file has faults; `faults` holds one line for each, in the order of the file."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


class ImageError(CohostError):
    """An image reference cannot be read, or does not fit the region or the task asked of it."""


class RoutingError(CohostError):
    """A call names a model, or a way of addressing one, that the endpoint does not have. No request was sent."""


class InvocationError(CohostError):
    """The endpoint answered a call with an error; `status` is the HTTP status where there was one."""

    def __init__(self, message: str, *, status: int | None = None, code: str | None = None) -> None:
        self.status = status
        self.code = code
        super().__init__(message)


class ModelNotReadyError(InvocationError):
    """The service still loads the model; asking again later helps."""


class WorkerStoppedError(InvocationError):
    """The model's process has ended, and the call did not reach it. Asking again helps where the server restarts it."""


class NoCapacityError(InvocationError):
    """No copy of the models runs: scaled to zero, or on its way up. Asking again in some minutes helps."""


class StackError(CohostError):
    """The stack, or an output of it, is not there."""


class LocalError(CohostError):
    """The AWS on this machine cannot start, stop or be reached."""


class PlanError(CohostError):
    """A model's shape or weights cannot be read, or nothing is known of what a plan is asked for."""


class CleanupError(CohostError):
    """Something could not be removed, or did not settle in time; the text says what to do."""


class OnnxError(CohostError):
    """A model cannot be exported, its export is not good enough, or an archive is not the one asked for."""


class ReportError(CohostError):
    """A folder holds no result of a load test, or one that this version cannot read."""


class SimulationError(CohostError):
    """A trace, a pattern or a setting cannot be replayed."""


class WeightsError(CohostError):
    """Weights cannot be fetched, are not as they must be, or cannot be stored."""
