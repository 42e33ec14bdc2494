"""One registered model: its files, settings and workers, its status and its description."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from local_aws.lmi.models.files import download, model_folder, with_local_weights
from local_aws.lmi.models.memory import check_fits, estimated_mb, resident_mb
from local_aws.lmi.models.serving_properties import read_settings
from local_aws.lmi.workers.pool import WorkerPool
from local_aws.lmi.workers.starter import WorkerStarter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from local_aws.lmi.models.hub import Hub
    from local_aws.lmi.settings import ModelSettings, ServerRules
    from local_aws.lmi.workers.fork_server import ForkServer
    from local_aws.lmi.workers.worker import Worker


class Status(Enum):
    """The status of a model. As in the real server, a model is READY before its workers have started."""

    PENDING = "PENDING"
    READY = "READY"
    FAILED = "FAILED"


@dataclass(frozen=True, kw_only=True)
class ContainerContext:
    """The parts that all models of a container share: fork server, hub, folder for unpacked files, memory.

    `memory_mb` is the memory, in MiB, that models may take; None for the machine's free memory. With `estimates`, a
    model that sets no required memory is taken to require 1.2 times the size of its files, as in the real server's
    multi-model mode. `used_mb` returns the memory of the loaded models, in MiB. `end_server` ends the container at
    once, with the exit code of SERVING_FAIL_FAST.
    """

    fork_server: ForkServer
    rules: ServerRules
    end_server: Callable[[], None]
    hub: Hub
    cache: Path
    memory_mb: int | None
    estimates: bool
    used_mb: Callable[[], int]


@dataclass(eq=False)
class Model:
    """A model of the container. `overrides` are the numbers that its load request gives, by property name."""

    name: str
    url: str
    at_startup: bool = False
    overrides: Mapping[str, int] = field(default_factory=dict)
    settings: ModelSettings | None = None
    pool: WorkerPool | None = None
    _folder: Path | None = None
    _status: Status = Status.PENDING
    _context: ContainerContext | None = None

    @property
    def status(self) -> Status:
        """Return the model's status for lists. With SERVING_FAIL_FAST, reading the status FAILED ends the container."""
        if self.pool is None or self._context is None:
            return self._status
        if self.pool.failures.ends_server:
            self._context.end_server()
        return Status.FAILED if self.pool.failed else self._status

    @property
    def health(self) -> str:
        """Return the model's status for pings and descriptions: Unhealthy if it has fewer workers than `min_workers`.

        An ended worker still counts for a minute, and a worker with a dead process counts as ended only after the
        server has detected the death.
        """
        if self.status is not Status.READY or self.pool is None:
            return self.status.value
        return "Healthy" if len(self.pool.workers) >= self.pool.min_workers else "Unhealthy"

    @property
    def locked(self) -> bool:
        """Return True if a failed start has locked a worker of the model, so that unloading the model never ends."""
        return self.pool is not None and any(worker.process.locked for worker in self.pool.workers)

    async def load(self, context: ContainerContext) -> None:
        """Load the model: fetch its files, read its settings, check the memory and start its workers.

        Raises:
            Fault: one of these steps failed.
        """
        self._context = context
        self._folder = await asyncio.to_thread(model_folder, self.url, context.cache, download)
        self.settings = await asyncio.to_thread(self._read, self._folder, context)
        estimated = estimated_mb(self.settings, self._folder) if context.estimates else 0
        try:
            check_fits(self.settings, estimated_mb=estimated, used_mb=context.used_mb(), budget_mb=context.memory_mb)
        except BaseException:
            self._status = Status.FAILED
            raise
        starter = WorkerStarter(context.fork_server, name=self.name, model_dir=self._folder, settings=self.settings)
        self.pool = WorkerPool(self.name, self.settings, context.rules, starter)
        self._status = Status.READY
        await self.pool.start()

    async def unload(self, context: ContainerContext) -> None:
        """End the workers; remove the unpacked files unless WorkerPool.close left a process running."""
        if self.pool is not None:
            await self.pool.close()
        if not self.alive:
            self.remove_files(context)

    @property
    def alive(self) -> bool:
        """Return True if the model has a process, or can still start one."""
        return self.pool is not None and self.pool.alive

    def remove_files(self, context: ContainerContext) -> None:
        """Remove the files that were unpacked for this model."""
        if self._folder is not None and self._folder.is_relative_to(context.cache):
            shutil.rmtree(context.cache / self._folder.relative_to(context.cache).parts[0], ignore_errors=True)

    def used_mb(self) -> int:
        """Return the model's memory in MiB: its workers' memory, but at least its `required_memory_mb`."""
        if self.pool is None or self.settings is None:
            return 0
        return max(resident_mb(self.pids), self.settings.required_memory_mb)

    @property
    def pids(self) -> Sequence[int]:
        """Return the process ids of the running workers."""
        return [worker.process.pid for worker in self.pool.workers if worker.running] if self.pool is not None else []

    def describe(self) -> dict[str, Any]:
        """Return the model's part of the answer to `GET /models/{name}`."""
        if self.pool is not None:
            self.pool.clear_stale()
        if self.pool is None or self.settings is None:
            numbers = dict.fromkeys(
                ("batchSize", "maxBatchDelayMillis", "maxIdleSeconds", "queueSize", "requestInQueue"), 0
            )
            return {**numbers, "status": self.health, "loadedAtStartup": False, "workerGroups": []}
        return {
            "modelName": self.name,
            "modelUrl": self.url,
            "batchSize": self.settings.batch_size,
            "maxBatchDelayMillis": self.settings.max_batch_delay_ms,
            "maxIdleSeconds": self.settings.max_idle_s,
            "queueSize": self.settings.queue_size,
            "requestInQueue": self.pool.waiting,
            "status": self.health,
            "loadedAtStartup": self.at_startup,
            "workerGroups": [
                {
                    "device": {"deviceType": "cpu", "deviceId": -1},
                    "minWorkers": self.pool.min_workers,
                    "maxWorkers": self.pool.max_workers,
                    "workers": [_described(worker) for worker in self.pool.workers],
                }
            ],
        }

    def _read(self, folder: Path, context: ContainerContext) -> ModelSettings:
        settings = read_settings(folder, self.overrides)
        return with_local_weights(settings, model_dir=folder, hub=context.hub, cache=context.cache, download=download)


def _described(worker: Worker) -> dict[str, Any]:
    started = datetime.fromtimestamp(worker.started_at, UTC).isoformat(timespec="milliseconds")
    status = "READY" if worker.running else "UNLOADING"
    return {"id": worker.number, "startTime": started.replace("+00:00", "Z"), "status": status}
