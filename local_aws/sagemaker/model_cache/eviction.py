"""The eviction of models from a container, to make room for another model or because caching is off.

AWS: "Multi-Model Endpoints" (the least recently used model is unloaded when memory is needed, and its files stay on
disk) and "Set … model caching behavior" (with caching off a model is unloaded after its call, and its files deleted).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from local_aws.sagemaker.containers.api import ContainerApi
    from local_aws.sagemaker.model_cache.disk import ModelDisk
    from local_aws.sagemaker.model_cache.models import CachedModel, CachedModels
    from local_aws.sagemaker.telemetry.logs import InstanceLog
    from local_aws.sagemaker.telemetry.metrics import Meter


class Eviction:
    """Unload models of one container. `evictions` counts the unloads that made room for another model."""

    def __init__(
        self, models: CachedModels, *, api: ContainerApi, disk: ModelDisk, log: InstanceLog, meter: Meter
    ) -> None:
        self._models = models
        self._api = api
        self._disk = disk
        self._log = log
        self._meter = meter
        self._making_room = asyncio.Lock()
        self.evictions = 0

    def victim(self, keep: CachedModel) -> CachedModel | None:
        """Choose the model to unload: the least recently used idle one, or a busy one if none is idle; never `keep`."""
        candidates = [m for m in self._models.by_last_use() if m.loaded and not m.retiring and m is not keep]
        return next((m for m in candidates if m.leases == 0), candidates[0] if candidates else None)

    async def make_room_beside(self, model: CachedModel) -> bool:
        """Unload the least recently used idle model other than `model`; return False if no other model is idle.

        Busy models are not unloaded: the caller holds a lease of `model`, so two callers could wait for ever for each
        other's leases to end.
        """
        victim = self.victim(model)
        if victim is None or victim.leases:
            return False
        await self.evict(victim)
        return True

    async def load_with_room(self, model: CachedModel, load: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
        """Call `load`; while the container lacks memory for `model`, evict another model and call `load` again.

        Returns:
            The container's answer to the last load request: status 507 if no model is left to evict.
        """
        # One load at a time: two models that make room for themselves would evict each other.
        async with self._making_room:
            while (answer := await load()).status_code == httpx.codes.INSUFFICIENT_STORAGE:
                if (victim := self.victim(model)) is not None:
                    await self.evict(victim)
                elif any(other.posting for other in self._models.by_last_use()):
                    await self._models.wait_for_change()
                else:
                    break
            return answer

    async def evict(self, model: CachedModel) -> None:
        """Unload a model to make room for another; its files stay on disk, so that the next load is fast."""
        await self._unload(model, keep_files=True)
        self.evictions += 1

    async def drop(self, model: CachedModel) -> None:
        """Unload a model and delete its files, as SageMaker does after a call where caching is disabled."""
        await self._unload(model, keep_files=False)

    async def _unload(self, model: CachedModel, *, keep_files: bool) -> None:
        # From here on new calls of the model wait and load it again, so that a busy model cannot block others for ever.
        model.retiring = True
        while model.leases:
            await self._models.wait_for_change()
        started = time.monotonic()
        try:
            await self._api.unload(model.model_id)
            self._meter.duration("ModelUnloadingTime", time.monotonic() - started)
            self._log.note(f"{model.target} was unloaded")
            if not keep_files:
                # Delete the files first: a call that starts now must not mistake them for a cached copy.
                await self._disk.discard(model.model_id)
        finally:
            self._models.remove(model)
            self._models.changed()
