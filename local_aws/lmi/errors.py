"""The container's error answers, with DJL Serving's HTTP status, type name and (if there is one) reason phrase.

Fault
├── BadRequest              400  (AlreadyRegistered 409)
├── TranslateFault          400  a batch of answers that does not fit its requests (BackendStopped: no process)
├── Forbidden               403  not of the real server: a caller without the container's token
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
├── ServerBusy              503  (not of the real server: see the class)
├── NoWorkers               503
└── OutOfMemory             507  (EngineOutOfMemory: a handler ran out of memory while it loaded)

Source: DJL Serving 0.36.0, recorded (tests/data/djl_vectors, tests/data/djl_lifecycle).
"""

from __future__ import annotations

from typing import ClassVar


class Fault(Exception):  # noqa: N818 - the type names of the answers are DJL Serving's, in `kind`
    """An error answer: `status`, `kind` (the type name in the body) and `message` (if None, the body has none)."""

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "InternalServerException"

    def __init__(self, message: str | None = None) -> None:
        self.message = message
        super().__init__(message or self.kind)

    @property
    def reason(self) -> str | None:
        """Return the reason phrase of the status line; None for HTTP's standard phrase of the status."""
        return None


class BadRequest(Fault):
    """The request itself is wrong; the error's message is also the reason phrase of the status line."""

    status = 400
    kind = "BadRequestException"

    @property
    def reason(self) -> str | None:
        """Return the error's message."""
        return self.message


class AlreadyRegistered(BadRequest):
    """A model of the requested name is registered already."""

    status = 409


class TranslateFault(Fault):
    """A handler's batch of answers does not fit the batch of requests."""

    status = 400
    kind = "TranslateException"


class Forbidden(Fault):
    """The caller is a web page, or does not send the container's token. The real server checks for neither."""

    status = 403
    kind = "AccessDeniedException"


class BackendStopped(TranslateFault):
    """The worker has no process that could answer: the last has ended, or the next is still loading the model."""

    def __init__(self) -> None:
        super().__init__("Backend Python process is stopped.")


class ModelNotFound(Fault):
    """There is no model of the requested name, or no model at the address that a load request names."""

    status = 404
    kind = "ModelNotFoundException"


class ResourceNotFound(Fault):
    """The API has no route for the requested path."""

    status = 404
    kind = "ResourceNotFoundException"

    def __init__(self) -> None:
        super().__init__("Requested resource is not found, please refer to API document.")


class MethodNotAllowed(Fault):
    """The route does not support the request's HTTP method."""

    status = 405
    kind = "MethodNotAllowedException"

    def __init__(self) -> None:
        super().__init__("Requested method is not allowed, please refer to API document.")


class NumberFormat(Fault):
    """A number in a request or setting cannot be read."""

    status = 409
    kind = "NumberFormatException"

    def __init__(self, text: str) -> None:
        super().__init__(f'For input string: "{text}"')


class IllegalArgument(Fault):
    """A model's setting has a value that the server does not know."""

    status = 409
    kind = "IllegalArgumentException"


class EngineFailure(Fault):
    """A model's worker did not start; the error has no message if the load took too long."""

    status = 500
    kind = "EngineException"


class DownloadFailure(EngineFailure):
    """A model's files cannot be fetched from S3."""


class ArchiveFailure(Fault):
    """A model's archive cannot be unpacked."""

    status = 500
    kind = "IOException"


class NullPointer(Fault):
    """A field that the real server reads is missing; the error has no message where Java's exception has none."""

    status = 500
    kind = "NullPointerException"


class JsonSyntax(Fault):
    """A request's body is not JSON, or not a JSON object; the message is Gson's."""

    status = 500
    kind = "JsonSyntaxException"


class Arithmetic(Fault):
    """The real server divides by its number of GPUs, which is 0."""

    status = 500
    kind = "ArithmeticException"


class StillUnloading(Fault):
    """A model of the requested name is still being unloaded."""

    status = 500
    kind = "UnsupportedOperationException"


class NotReady(Fault):
    """The model is loading or has failed."""

    status = 503
    kind = "WlmException"

    def __init__(self, model: str) -> None:
        super().__init__(f"Model is not ready: {model}")


class WorkerFailure(Fault):
    """The worker that had the request died, was too slow or was shut down."""

    status = 503
    kind = "WlmException"


class ServerBusy(Fault):
    """The bodies of requests in progress take all the memory allowed to bodies; the real server has no such limit."""

    status = 503
    kind = "ServiceUnavailableException"


class CapacityExceeded(Fault):
    """The model's queue is full, or the model has no running worker."""

    status = 503
    kind = "WlmCapacityException"

    def __init__(self, model: str) -> None:
        super().__init__(f"Worker queue capacity exceeded for model: {model}")


class NoWorkers(Fault):
    """The model has been scaled to a maximum of zero workers."""

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
