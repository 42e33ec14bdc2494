"""All models of a container, by name."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from local_aws.lmi.faults import AlreadyRegistered, ArchiveFailure, Fault, ModelNotFound
from local_aws.lmi.model import Machine, Model, Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from local_aws.hub import Hub
    from local_aws.lmi.fork_server import ForkServer, WorkerProcess

logger = logging.getLogger(__name__)


class Registry:
    """Loads, finds and unloads models."""

    def __init__(
        self, *, fork_server: ForkServer, hub: Hub, cache: Path, memory_mb: int | None, multi_model: bool
    ) -> None:
        self._models: dict[str, Model] = {}
        self._loads: set[asyncio.Task[None]] = set()
        self._machine = Machine(
            fork_server=fork_server,
            hub=hub,
            cache=cache,
            memory_mb=memory_mb,
            estimates=multi_model,
            used_mb=self._used_mb,
        )

    @property
    def models(self) -> Mapping[str, Model]:
        """The models by name, in the order of their registration."""
        return self._models

    @property
    def worker_processes(self) -> Mapping[int, WorkerProcess]:
        """Every worker process that runs, by pid: also one that its model does not list, or whose model is gone."""
        return self._machine.fork_server.workers

    @property
    def single_startup_model(self) -> str | None:
        """The model that requests without a name go to: the only one of the model store."""
        names = [model.name for model in self._models.values() if model.at_startup]
        return names[0] if len(names) == 1 else None

    async def register(self, model: Model) -> None:
        """Loads a model and keeps it; one that fails is gone again.

        Raises:
            AlreadyRegistered: the name is taken.
            Fault: the model cannot be loaded.
        """
        self._take_name(model)
        try:
            await self._load(model)
        except BaseException:
            if self._models.get(model.name) is model:
                self.unregister(model.name)
            raise

    def register_later(self, model: Model) -> None:
        """Loads a model in the background; one that fails stays, with what it came to as its status.

        Raises:
            AlreadyRegistered: the name is taken.
        """
        self._take_name(model)
        task = asyncio.create_task(self._load_quietly(model))
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    def unregister(self, name: str) -> None:
        """Takes a model out and ends its workers.

        Raises:
            ModelNotFound: there is none of that name.
        """
        model = self._models.pop(name, None)
        if model is None:
            raise ModelNotFound(f"Model or workflow not found: {name}")
        model.unload(self._machine)

    def get(self, name: str, *, described: bool = False) -> Model:
        """A model by name.

        Raises:
            ModelNotFound: there is none; `described` picks the wording of descriptions.
        """
        model = self._models.get(name)
        if model is None:
            raise ModelNotFound(f"Workflow not found: {name}" if described else f"Model or workflow not found: {name}")
        return model

    def close(self) -> None:
        """Unloads everything."""
        for task in self._loads:
            task.cancel()
        for name in list(self._models):
            self.unregister(name)

    def _take_name(self, model: Model) -> None:
        if model.name in self._models:
            raise AlreadyRegistered(f"Workflow {model.name} is already registered.")
        self._models[model.name] = model

    async def _load(self, model: Model) -> None:
        try:
            await model.load(self._machine)
        except OSError as error:
            raise ArchiveFailure(f"cannot read the model's files: {error}") from error
        if self._models.get(model.name) is not model:
            # It was unregistered while its files were being fetched.
            model.unload(self._machine)
            raise ModelNotFound(f"Model or workflow not found: {model.name}")

    async def _load_quietly(self, model: Model) -> None:
        try:
            await self._load(model)
        except Fault as fault:
            logger.warning("%s: cannot be loaded: %s", model.name, fault)

    def _used_mb(self) -> int:
        return sum(model.used_mb() for model in self._models.values() if model.status is Status.READY)
