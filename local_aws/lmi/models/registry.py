"""All models of a container, by name, and the models that the container loads at its start.

Source: DJL Serving 0.36.0 (ModelStore), recorded (tests/data/djl_vectors/11 to 17_startup_*): each folder of a model
store is a model; anything else in the store, even a README, makes the store itself the model; archives in the store are
ignored. A folder's name is converted into a model's name (recording 29): if two folders have the same model name, the
load of the second ends the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from cohost.archives.archive import server_name
from local_aws.lmi.errors import (
    AlreadyRegistered,
    ArchiveFailure,
    DownloadFailure,
    Fault,
    ModelNotFound,
    StillUnloading,
)
from local_aws.lmi.models.files import innermost, is_archive
from local_aws.lmi.models.memory import resident_mb
from local_aws.lmi.models.model import ContainerContext, Model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from local_aws.lmi.models.hub import Hub
    from local_aws.lmi.settings import ServerRules
    from local_aws.lmi.workers.fork_server import ForkedProcess, ForkServer


logger = logging.getLogger(__name__)

_MOMENT_S = 0.25


class Registry:
    """The models of a container by name: it loads, finds and unloads them."""

    def __init__(
        self,
        *,
        fork_server: ForkServer,
        hub: Hub,
        cache: Path,
        memory_mb: int | None,
        multi_model: bool,
        rules: ServerRules,
        end_server: Callable[[], None],
    ) -> None:
        self._models: dict[str, Model] = {}
        self._loads: set[asyncio.Task[None]] = set()
        self._failed: dict[str, tuple[float, bool]] = {}
        # Models that are no longer listed: workers of the first are still ending, the second may have left a process.
        self._leaving: list[Model] = []
        self._unloaded: list[Model] = []
        self._fork_server = fork_server
        self._context = ContainerContext(
            fork_server=fork_server,
            hub=hub,
            cache=cache,
            memory_mb=memory_mb,
            estimates=multi_model,
            used_mb=self._used_mb,
            rules=rules,
            end_server=end_server,
        )

    @property
    def models(self) -> Mapping[str, Model]:
        """Return the registered models by name, in the order of their registration."""
        return self._models

    @property
    def worker_processes(self) -> Mapping[int, ForkedProcess]:
        """Return every worker process by pid, including processes that no model lists, and those of deleted models."""
        return self._context.fork_server.workers

    @property
    def single_startup_model(self) -> str | None:
        """Return the model for requests that name none: the store's only model; None if it has none or several."""
        names = [model.name for model in self._models.values() if model.at_startup]
        return names[0] if len(names) == 1 else None

    async def register(self, model: Model) -> None:
        """Register a model and load it; a model that cannot be loaded is removed again.

        Raises:
            AlreadyRegistered: the name is taken.
            StillUnloading: a model of this name is being unloaded, which never ends if its worker is locked.
            Fault: the model cannot be loaded.
        """
        self._take_name(model)
        try:
            await self._load(model)
        except BaseException as error:
            if self._models.get(model.name) is model:
                await self.unregister(model.name)
                if model.pool is not None or isinstance(error, DownloadFailure | ArchiveFailure):
                    self._failed[model.name] = (time.monotonic(), model.pool is not None)
            raise

    def register_later(self, model: Model) -> None:
        """Register a model and load it in the background; a model that cannot be loaded stays registered.

        Raises:
            AlreadyRegistered: the name is taken.
            StillUnloading: a model of this name is being unloaded.
        """
        self._take_name(model)
        task = asyncio.create_task(self._load_quietly(model))
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    async def unregister(self, name: str) -> None:
        """Remove a model and end its workers; a worker that is starting keeps running, but no model lists it.

        The call returns once the workers have ended; if a failed restart has locked one of them, it never returns.

        Raises:
            ModelNotFound: there is no model of this name.
        """
        model = self._models.pop(name, None)
        if model is None:
            raise ModelNotFound(f"Model or workflow not found: {name}")
        self._leaving.append(model)
        await model.unload(self._context)
        self._leaving.remove(model)
        self._unloaded.append(model)
        for gone in [gone for gone in self._unloaded if not gone.alive]:
            self._unloaded.remove(gone)
            gone.remove_files(self._context)

    def is_leaving(self, name: str, *, without_workers: bool = False) -> bool:
        """Return True if a load of a model of this name failed within the last 0.25 s and the name is free.

        With `without_workers`, a load counts only if it failed before the model had workers. The real server answers
        the failed load before it removes the model, so a quick caller finds the model half removed (recordings 04, 05,
        22).
        """
        failed_at, had_workers = self._failed.get(name, (-_MOMENT_S, False))
        is_recent = time.monotonic() - failed_at < _MOMENT_S
        return is_recent and name not in self._models and not (without_workers and had_workers)

    def get(self, name: str, *, described: bool = False) -> Model:
        """Return a model by name.

        Raises:
            ModelNotFound: there is no model of this name; `described` selects the error text of `GET /models/{name}`.
        """
        model = self._models.get(name)
        if model is None:
            raise ModelNotFound(f"Workflow not found: {name}" if described else f"Model or workflow not found: {name}")
        return model

    def end(self) -> None:
        """End all loads and workers without waiting, because the server itself ends."""
        for task in self._loads:
            task.cancel()
        for model in (*self._models.values(), *self._leaving, *self._unloaded):
            if model.pool is not None:
                model.pool.end()

    def _take_name(self, model: Model) -> None:
        if model.name in self._models:
            raise AlreadyRegistered(f"Workflow {model.name} is already registered.")
        if any(leaving.name == model.name for leaving in self._leaving):
            raise StillUnloading
        self._models[model.name] = model

    async def _load(self, model: Model) -> None:
        try:
            await model.load(self._context)
        except OSError as error:
            raise ArchiveFailure(f"cannot read the model's files: {error}") from error
        if self._models.get(model.name) is not model and model not in self._unloaded:
            # The model was unregistered meanwhile. The real server answers "registered", and keeps its processes.
            self._unloaded.append(model)

    async def _load_quietly(self, model: Model) -> None:
        try:
            await self._load(model)
        except Fault as fault:
            logger.warning("%s: cannot be loaded: %s", model.name, fault)

    def _used_mb(self) -> int:
        """Return the memory, in MiB, of all models, and of the processes that no model lists.

        The processes that no model lists are loaded worker processes, and processes that workers have started, such as
        engine processes. On the real server all these processes reduce the free memory that a load is checked against.
        """
        models = self._models.values()
        listed = {pid for model in models for pid in model.pids}
        others = (self._fork_server.loaded - listed) | self._fork_server.started_by_workers()
        return sum(model.used_mb() for model in models) + resident_mb(others)


# The characters that Java does not quote in the path of an address (java.net.URI: quoted characters).
_UNQUOTED = "/!$&'()*+,;=:@~"


def startup_models(store: Path) -> list[Model]:
    """Return the models of a model store, not yet loaded; none if the store is empty or missing."""
    if not store.is_dir():
        return []
    entries = sorted(store.iterdir())
    if all(entry.is_dir() or is_archive(entry) for entry in entries if not entry.name.startswith(".")):
        return [_model(entry) for entry in entries if entry.is_dir() and any(entry.iterdir())]
    return [_model(store)]


def _model(folder: Path) -> Model:
    inner = innermost(folder.absolute())
    return Model(server_name(inner.name), f"file:{quote(str(inner), safe=_UNQUOTED)}/", at_startup=True)
