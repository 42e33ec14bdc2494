"""A restarted process: its first call is answered at once, and the model is loaded behind it.

DJL Serving 0.36.0 waits for the first call of a process that it has started again, in a thread that serves connections.
When that call fails, or the process ends in it, the thread waits for ever (recorded: `djl_lifecycle`, 31). So that call
must neither fail nor take long. Calls that come before the model is there wait for it; when it cannot be loaded they
are told why, and it is tried again.

Nothing here imports torch before the first call is answered: memory may run out in that, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import threading
import time
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from .cohost_errors import BusyError, HandlerError, Output, one_line, refusal_of
from .cohost_memory import is_lost_device
from .cohost_options import read_options
from .cohost_watchdog import LOST_DEVICE_CODE, Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .cohost_request import Input

logger = logging.getLogger(__name__)

PAUSES_S: Final = (5.0, 10.0, 20.0, 40.0)
"""Between attempts to load; the last one again and again. Another model may give its memory back meanwhile."""

_LONGEST_REASON: Final = 300
# The server's own queue holds as many (DJL Serving 0.36.0: job_queue_size).
_MOST_WAITING: Final = 1000
# Restarts are counted, and the last one takes all models of the machine down: a driver has time to come back.
_LOST_DEVICE_PAUSE_S: Final = 5.0

Prepared = TypeVar("Prepared")


class Service(Protocol[Prepared]):
    """A service whose model can be loaded in a thread of its own."""

    def prepare(self, properties: Mapping[str, Any]) -> Prepared: ...  # noqa: D102
    def begin(self, prepared: Prepared) -> None: ...  # noqa: D102
    async def handle(self, inputs: Input) -> Any: ...  # noqa: ANN401, D102


def service_of(module: str, name: str, output: type[Output], *, restarted: bool, **settings: Any) -> Any:  # noqa: ANN401 - either
    """Make the service that model.py hands calls to, imported at once or, in a restarted process, later.

    Args:
        module: the module with the service's class.
        name: the class, which is made with `output`.
        output: the server's class of answers.
        restarted: what `cohost_restart.begin` said.
        settings: further keywords of the class.
    """

    def make() -> Any:  # noqa: ANN401 - a service
        return getattr(importlib.import_module(module), name)(output, **settings)

    return Reloader(output, make) if restarted else make()


class Reloader(Generic[Prepared]):
    """Serves one model in a restarted process. `make` imports and makes the service, in the thread that loads."""

    def __init__(
        self,
        output: type[Output],
        make: Callable[[], Service[Prepared]],
        *,
        pauses_s: Iterable[float] = PAUSES_S,
        lost_device_pause_s: float = _LOST_DEVICE_PAUSE_S,
        end_process: Callable[[int], None] = os._exit,
    ) -> None:
        self._output = output
        self._make = make
        self._pauses_s = tuple(pauses_s)
        self._lost_device_pause_s = lost_device_pause_s
        self._service: Service[Prepared] | None = None
        self._failure: str | None = None
        self._attempt: asyncio.Future[None] | None = None
        self._wait_s = 0.0
        self._waiting = 0
        self._ending = Ending(lambda: self._waiting, end_process)

    async def handle(self, inputs: Input) -> Any:  # noqa: ANN401 - the server's class of answers
        """Answer one call: the first at once, later ones when the model is loaded or cannot be."""
        if self._service is None and self._attempt is None:
            self._start(inputs.get_properties())
        if self._service is None:
            if inputs.is_empty():
                return self._output()
            try:
                await self._loaded()
            except HandlerError as error:
                return refusal_of(self._output, error)
        assert self._service is not None  # noqa: S101 - what `_loaded` waits for
        return await self._service.handle(inputs)

    def _start(self, properties: Mapping[str, Any]) -> None:
        # The options are those of a model that was served; if they are wrong all the same, loading says so.
        with contextlib.suppress(ValueError, KeyError):
            self._wait_s = read_options(properties).max_queue_time_ms / 1000
        loop = asyncio.get_running_loop()
        self._attempt = loop.create_future()
        arguments = (dict(properties), loop)
        threading.Thread(target=self._load, args=arguments, name="cohost-reload", daemon=True).start()

    async def _loaded(self) -> None:
        """Wait for the model.

        Raises:
            BusyError: it cannot be loaded at present, or the call waited too long, or too many wait.
        """
        if self._waiting >= _MOST_WAITING:
            raise BusyError(
                f"the model's process was started again, and {self._waiting} calls wait for the model; send the "
                "request again in some seconds"
            )
        self._waiting += 1
        try:
            if self._failure is None and self._attempt is not None:
                await asyncio.wait([self._attempt], timeout=self._wait_s)
        finally:
            self._waiting -= 1
        if self._service is None:
            raise BusyError(
                self._failure
                or f"the model's process was started again, and the model is not loaded after {self._wait_s:g} s; send "
                "the request again"
            )

    def _load(self, properties: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: load the model, again and again until it is there, or only another process could."""
        service: Service[Prepared] | None = None
        for pause_s in chain(self._pauses_s, repeat(self._pauses_s[-1])):
            try:
                service = service or self._make()
                prepared = service.prepare(properties)
            except Exception as error:
                # Whatever it is, callers must be answered; and it must not be kept, since it holds what was loaded.
                logger.exception("the model cannot be loaded again")
                reason = one_line(f"{type(error).__name__}: {error}")[:_LONGEST_REASON]
                lost = is_lost_device(error)
            else:
                _call(loop, self._serve, service, prepared)
                return
            if lost:
                self._end(reason, loop)
                return
            self._pause(reason, pause_s, loop)

    def _end(self, reason: str, loop: asyncio.AbstractEventLoop) -> None:
        text = f"the GPU failed ({reason}), so the model's process ends; send the request again in some seconds"
        _call(loop, self._fail, text)
        time.sleep(self._lost_device_pause_s)
        self._ending.begin(LOST_DEVICE_CODE)

    def _pause(self, reason: str, pause_s: float, loop: asyncio.AbstractEventLoop) -> None:
        text = (
            f"the model's process was started again and cannot load the model ({reason}); it tries again within "
            f"{pause_s:g} s"
        )
        _call(loop, self._fail, text)
        time.sleep(pause_s)
        _call(loop, self._retry)

    def _serve(self, service: Service[Prepared], prepared: Prepared) -> None:
        service.begin(prepared)
        self._service = service
        self._wake()

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._wake()

    def _retry(self) -> None:
        self._failure = None
        self._attempt = asyncio.get_running_loop().create_future()

    def _wake(self) -> None:
        if self._attempt is not None and not self._attempt.done():
            self._attempt.set_result(None)


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Run a function in the event loop, unless that has ended with the process."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)
