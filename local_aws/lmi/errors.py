"""The errors of the server itself, with DJL Serving's status, type name and (if there is one) reason.

Fault
├── BadRequest              400  (AlreadyRegistered 409)
├── TranslateFault          400  a batch of answers that does not fit its requests (BackendStopped: no process)
├── Forbidden               403  ours: a caller without the token of this start
├── ModelNotFound           404
├── ResourceNotFound        404
├── MethodNotAllowed        405
├── NumberFormat            409
├── IllegalArgument         409
├── EngineFailure           500  a model that does not start (DownloadFailure: its files cannot be fetched)
├── ArchiveFailure          500
├── NullPointer, JsonSyntax, Arithmetic  500  an exception in the real server's own code
├── StillUnloading          500
├── NotReady, WorkerFailure 503
├── CapacityExceeded        503
├── NoWorkers               503
└── OutOfMemory             507  (EngineOutOfMemory: a handler ran out of memory while it loaded)

Source: DJL Serving 0.36.0, recorded (tests/data/djl_vectors, tests/data/djl_lifecycle).
"""

from __future__ import annotations

from typing import ClassVar


class Fault(Exception):  # noqa: N818 - the type names of the answers are DJL Serving's, in `kind`
    """An error answer: `status`, `kind` (the type name in the body), `message` (left out of the body when None)."""

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "InternalServerException"

    def __init__(self, message: str | None = None) -> None:
        self.message = message
        super().__init__(message or self.kind)

    @property
    def reason(self) -> str | None:
        """Return the reason of the status line where it is not the usual one."""
        return None


class BadRequest(Fault):
    """The request itself is wrong; its message is the reason of the status line too."""

    status = 400
    kind = "BadRequestException"

    @property
    def reason(self) -> str | None:
        """Return the message, on one line."""
        return self.message


class AlreadyRegistered(BadRequest):
    """A model of that name is there."""

    status = 409


class TranslateFault(Fault):
    """A handler's batch of answers does not fit the batch of requests."""

    status = 400
    kind = "TranslateException"


class Forbidden(Fault):
    """The caller is a web page, or a program without the token of this start. The real server has no such check."""

    status = 403
    kind = "AccessDeniedException"


class BackendStopped(TranslateFault):
    """The worker's process has ended and is not replaced, or not yet."""

    def __init__(self) -> None:
        super().__init__("Backend Python process is stopped.")


class ModelNotFound(Fault):
    """No model of that name, or nothing at the address it should be loaded from."""

    status = 404
    kind = "ModelNotFoundException"


class ResourceNotFound(Fault):
    """No such route."""

    status = 404
    kind = "ResourceNotFoundException"

    def __init__(self) -> None:
        super().__init__("Requested resource is not found, please refer to API document.")


class MethodNotAllowed(Fault):
    """The route does not take that method."""

    status = 405
    kind = "MethodNotAllowedException"

    def __init__(self) -> None:
        super().__init__("Requested method is not allowed, please refer to API document.")


class NumberFormat(Fault):
    """A number cannot be read."""

    status = 409
    kind = "NumberFormatException"

    def __init__(self, text: str) -> None:
        super().__init__(f'For input string: "{text}"')


class IllegalArgument(Fault):
    """A setting has a value that the server does not know."""

    status = 409
    kind = "IllegalArgumentException"


class EngineFailure(Fault):
    """A model's worker did not start; without a message where it took too long."""

    status = 500
    kind = "EngineException"


class DownloadFailure(EngineFailure):
    """A model's files cannot be fetched."""


class ArchiveFailure(Fault):
    """A model's archive cannot be unpacked."""

    status = 500
    kind = "IOException"


class NullPointer(Fault):
    """The real server reads a field that is not there; without a message where Java gives none."""

    status = 500
    kind = "NullPointerException"


class JsonSyntax(Fault):
    """A body is no JSON, or of another shape; the message is Gson's."""

    status = 500
    kind = "JsonSyntaxException"


class Arithmetic(Fault):
    """The real server divides by its number of GPUs, and there is none."""

    status = 500
    kind = "ArithmeticException"


class StillUnloading(Fault):
    """A model of that name is being unloaded, and the server has not got through with it."""

    status = 500
    kind = "UnsupportedOperationException"


class NotReady(Fault):
    """The model is loading or has failed."""

    status = 503
    kind = "WlmException"

    def __init__(self, model: str) -> None:
        super().__init__(f"Model is not ready: {model}")


class WorkerFailure(Fault):
    """The worker that had the request died, was too slow or was taken down."""

    status = 503
    kind = "WlmException"


class CapacityExceeded(Fault):
    """The queue is full, or no worker is alive."""

    status = 503
    kind = "WlmCapacityException"

    def __init__(self, model: str) -> None:
        super().__init__(f"Worker queue capacity exceeded for model: {model}")


class NoWorkers(Fault):
    """The model has been scaled to no worker at all."""

    status = 503
    kind = "WlmShutdownException"

    def __init__(self, model: str) -> None:
        super().__init__(f"All model workers has been shutdown: {model}")


class OutOfMemory(Fault):
    """The model does not fit into the free memory."""

    status = 507
    kind = "WlmOutOfMemoryException"

    def __init__(self) -> None:
        super().__init__("No enough memory to load the model.")


class EngineOutOfMemory(Fault):
    """A model's worker ran out of memory while it loaded."""

    status = 507
    kind = "EngineException"

    def __init__(self) -> None:
        super().__init__("OOM")
