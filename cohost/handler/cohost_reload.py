"""The first call of a process, in which DJL Serving waits for the model; a failed first call would block the server.

The first call of an asynchronous model must not raise or answer an error, and the process must not end during that
call. Otherwise a thread of DJL Serving 0.36.0 waits for ever: the requests to load and to unload the model are never
answered, and some connections hang (recorded: `djl_lifecycle`, 31; also tried with a first start). If the process ends
during the import of model.py, DJL Serving answers the request to load at once. So

* a first start begins to load during that import, and a failure ends the process there. DJL Serving allows two minutes
  for the import, so a longer load continues in the first call;
* on a multi-model endpoint, a load that fails in the first call or later is reported to callers and retried. A server
  that loads its models at start-up must not become ready without one of them, so there the first call fails;
* a restarted process answers its first call at once and loads in the background, because one of the server's connection
  threads waits for that answer. Calls that arrive before the model is loaded wait for the model. Nothing imports torch
  before the first call is answered, because importing torch can run out of memory, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import sys
import threading
import time
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from .cohost_errors import BusyError, HandlerError, ModelError, Output, reason_of, refusal_of
from .cohost_memory import is_lost_device
from .cohost_options import read_options
from .cohost_watchdog import LOST_DEVICE_CODE, Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .cohost_request import Input

logger = logging.getLogger(__name__)

PAUSES_S: Final = (5.0, 10.0, 20.0, 40.0)
"""Pauses between attempts to load, in seconds; the last repeats. Another model may free its memory meanwhile."""

# The server waits 120 s for a process to listen (DJL Serving 0.36.0: PyProcess), and its start takes part of that.
_EARLY_S: Final = 75.0
_MULTI_MODEL: Final = "SAGEMAKER_MULTI_MODEL"
_FETCHED_BY_THE_SERVER: Final = ("s3://", "djl://")
# The capacity of the server's own queue (DJL Serving 0.36.0: job_queue_size).
_MOST_WAITING: Final = 1000
# Restarts are limited, and after the last one all models of the instance fail, so the driver gets time to recover.
_LOST_DEVICE_PAUSE_S: Final = 5.0

Prepared = TypeVar("Prepared")


class Service(Protocol[Prepared]):
    """The methods of a service that `Reloader` calls: `prepare` loads the model, in a separate thread."""

    def prepare(self, properties: Mapping[str, Any]) -> Prepared: ...  # noqa: D102
    def begin(self, prepared: Prepared) -> None: ...  # noqa: D102
    async def handle(self, inputs: Input) -> Any: ...  # noqa: D102


_made: dict[Path, Reloader[Any]] = {}


def service_of(
    folder: Path, module: str, name: str, output: type[Output], *, restarted: bool, **settings: object
) -> Reloader[Any]:
    """Return the service that model.py calls; create it once per process for each model folder.

    Args:
        folder: the model's folder.
        module: the name of the module with the service's class.
        name: the name of the class, which is created with `output`.
        output: DJL Serving's class of answers.
        restarted: the result of `cohost_restart.begin`.
        settings: further keyword arguments of the class.

    Raises:
        Exception: in a first start, any error of loading the model within the first 75 s.
    """
    if folder not in _made:

        def make() -> Any:
            return getattr(importlib.import_module(module), name)(output, **settings)

        _made[folder] = Reloader(output, make) if restarted else _first_start(folder, output, make())
    return _made[folder]


def _first_start(folder: Path, output: type[Output], service: Service[Prepared]) -> Reloader[Prepared]:
    properties, early = early_properties(folder, sys.argv), None
    if properties is not None:
        read_options(properties)
        if has_weights(properties):
            early = EarlyLoad(service, properties)
            early.wait(_EARLY_S)
    return Reloader(output, lambda: service, first=FirstStart(early, os.environ.get(_MULTI_MODEL) == "true"))


def early_properties(folder: Path, arguments: Sequence[str]) -> dict[str, str] | None:
    """Return the first call's properties in advance, from the folder and the command line; None if they are unknown.

    The properties are unknown if no server started this process, or if Java may read a line of serving.properties
    differently than this function.
    """
    try:
        text = (folder / "serving.properties").read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip() and line.strip()[0] not in "#!"]
    if "--device-id" not in arguments or "\\" in text or not all("=" in line for line in lines):
        return None
    pairs = (line.partition("=")[::2] for line in lines)
    properties = {key.strip().removeprefix("option."): value.strip() for key, value in pairs}
    return properties | {"device_id": arguments[arguments.index("--device-id") + 1], "model_dir": str(folder)}


def has_weights(properties: Mapping[str, str]) -> bool:
    """Return True if serving.properties is enough to find the weights before the first call.

    For weights that the server downloads, only the first call states their location. For weights in a subfolder of the
    model's folder, the first call states a full path in place of the relative one.
    """
    model = properties.get("model_id", "")
    beside = bool(model) and not Path(model).is_absolute() and Path(properties["model_dir"], model).is_dir()
    return not beside and not model.startswith(_FETCHED_BY_THE_SERVER)


class EarlyLoad(Generic[Prepared]):
    """The load of a model in a separate thread that starts before the first call."""

    def __init__(self, service: Service[Prepared], properties: Mapping[str, Any]) -> None:
        self._service = service
        self._properties = properties
        self._prepared: Prepared | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="cohost-load", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._prepared = self._service.prepare(self._properties)
        except Exception as error:  # noqa: BLE001 - `wait` raises the error in a thread that can answer callers
            self._error = error

    def wait(self, limit_s: float | None = None) -> None:
        """Wait for the end of the load, for at most `limit_s` seconds.

        Raises:
            Exception: the error of the load.
        """
        self._thread.join(limit_s)
        if self._error is not None:
            raise self._error

    def result(self, properties: Mapping[str, Any]) -> Prepared | None:
        """Wait for the load and return the loaded model; None if the first call's options differ from the load's.

        Raises:
            Exception: the error of the load.
        """
        self.wait()
        prepared, self._prepared = self._prepared, None
        return prepared if read_options(self._properties) == read_options(properties) else None


@dataclass(frozen=True, slots=True)
class FirstStart(Generic[Prepared]):
    """A first start: `early` is its early load, if any; with `tells_callers`, only callers are told a later failure."""

    early: EarlyLoad[Prepared] | None
    tells_callers: bool


class Reloader(Generic[Prepared]):
    """The service of one model, which loads the model in its first call. `make` imports and creates the inner service.

    `make` runs in the loading thread. Without `first`, this process is the restart of an earlier one.
    """

    def __init__(
        self,
        output: type[Output],
        make: Callable[[], Service[Prepared]],
        *,
        first: FirstStart[Prepared] | None = None,
        pauses_s: Iterable[float] = PAUSES_S,
        lost_device_pause_s: float = _LOST_DEVICE_PAUSE_S,
        end_process: Callable[[int], None] = os._exit,
    ) -> None:
        self._output = output
        self._make = make
        self._first = first
        self._what = "" if first else "the model's process was started again, and "
        self._pauses_s = tuple(pauses_s)
        self._lost_device_pause_s = lost_device_pause_s
        self._service: Service[Prepared] | None = None
        self._failure: str | None = None
        self._attempt: asyncio.Future[None] | None = None
        self._wait_s = 0.0
        self._waiting = 0
        self._ending = Ending(lambda: self._waiting, end_process)

    async def handle(self, inputs: Input) -> Any:  # the server's class of answers
        """Answer one call.

        A restarted process answers its first call at once. All other calls are answered when the model is loaded.

        Raises:
            ModelError: the load of a first start failed, and the server must not become ready without the model.
        """
        if self._service is None and self._attempt is None:
            self._start(inputs.get_properties())
            if self._first is not None and self._attempt is not None:
                await asyncio.wait([self._attempt])
                if self._failure is not None and not self._first.tells_callers:
                    raise ModelError(self._failure)
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
        # The options are those of a model that was already served; if they are wrong all the same, the load reports
        # the error.
        with contextlib.suppress(ValueError, KeyError):
            self._wait_s = read_options(properties).max_queue_time_ms / 1000
        loop = asyncio.get_running_loop()
        self._attempt = loop.create_future()
        arguments = (dict(properties), loop)
        threading.Thread(target=self._load, args=arguments, name="cohost-reload", daemon=True).start()

    async def _loaded(self) -> None:
        """Wait for the model.

        Raises:
            BusyError: the model cannot be loaded at present, the call waited too long, or too many calls wait.
        """
        if self._waiting >= _MOST_WAITING:
            raise BusyError(
                f"{self._what}{self._waiting} calls wait for the model; fix: send the request again in some seconds"
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
                or f"{self._what}the model is not loaded after {self._wait_s:g} s; fix: send the request again"
            )

    def _load(self, properties: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        """Try to load the model until it is loaded, or until the GPU is lost and only a new process can load it."""
        service: Service[Prepared] | None = None
        early = self._first.early if self._first else None
        for pause_s in chain(self._pauses_s, repeat(self._pauses_s[-1])):
            try:
                service = service or self._make()
                prepared = early.result(properties) if early else None
                prepared = prepared or service.prepare(properties)
            except Exception as error:
                # After any error callers must be answered. The exception itself must not be kept, because it keeps the
                # loaded parts in memory.
                logger.exception("the model cannot be loaded")
                reason = reason_of(error)
                lost = is_lost_device(error)
            else:
                _call(loop, self._serve, service, prepared)
                return
            early = None
            if lost:
                self._end(reason, loop)
                return
            self._pause(reason, pause_s, loop)

    def _end(self, reason: str, loop: asyncio.AbstractEventLoop) -> None:
        text = f"the GPU failed ({reason}), so the model's process ends; fix: send the request again in some seconds"
        _call(loop, self._fail, text)
        time.sleep(self._lost_device_pause_s)
        self._ending.begin(LOST_DEVICE_CODE)

    def _pause(self, reason: str, pause_s: float, loop: asyncio.AbstractEventLoop) -> None:
        text = f"{self._what}the model cannot be loaded ({reason}); the process tries again within {pause_s:g} s"
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
    """Run a function in the event loop, unless the loop is closed because the process ends."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)
