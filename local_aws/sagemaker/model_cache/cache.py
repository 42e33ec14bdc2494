"""The models in the memory of one instance of a multi-model endpoint: load them, and lease them to calls.

AWS: "Multi-Model Endpoints" and "Invoke a Multi-Model Endpoint". A model is fetched and loaded at its first call and
stays until another model needs its memory (eviction.py). Concurrent first calls share one load.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import httpx

from local_aws.sagemaker.errors import ModelLoadError, container_ended, load_timed_out, model_not_ready
from local_aws.sagemaker.model_cache.disk import S3Location
from local_aws.sagemaker.model_cache.eviction import Eviction
from local_aws.sagemaker.model_cache.models import CachedModels

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from pathlib import Path

    from local_aws.sagemaker.containers.api import ContainerApi
    from local_aws.sagemaker.fault_injection import FaultSwitches
    from local_aws.sagemaker.model_cache.disk import ModelDisk
    from local_aws.sagemaker.model_cache.models import CachedModel
    from local_aws.sagemaker.settings import Settings
    from local_aws.sagemaker.telemetry.logs import InstanceLog
    from local_aws.sagemaker.telemetry.metrics import Meter


class ModelCache:
    """Load models in one container and lease them to calls: a leased model stays loaded until its release.

    `prefix` is the endpoint's ModelDataUrl. If `keep` is False, each model is unloaded after its call.
    """

    def __init__(
        self,
        *,
        api: ContainerApi,
        disk: ModelDisk,
        log: InstanceLog,
        prefix: S3Location,
        settings: Settings,
        faults: FaultSwitches,
        meter: Meter,
        keep: bool,
    ) -> None:
        self._api = api
        self._disk = disk
        self._log = log
        self._prefix = prefix
        self._settings = settings
        self._faults = faults
        self._meter = meter
        self._keep = keep
        self._models = CachedModels()
        self._eviction = Eviction(self._models, api=api, disk=disk, log=log, meter=meter)
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def models(self) -> Sequence[CachedModel]:
        """The models that are loaded or being loaded, the most recently used last."""
        return self._models.by_last_use()

    @property
    def evictions(self) -> int:
        """The number of times that a model was unloaded to free memory for another one."""
        return self._eviction.evictions

    @property
    def loaded_count(self) -> int:
        """The number of loaded models."""
        return sum(model.loaded for model in self.models)

    def holds(self, target: str) -> bool:
        """Return True if the model of a TargetModel is loaded or being loaded."""
        return self._models.get(target) is not None

    async def acquire(self, target: str) -> CachedModel:
        """Lease a model, which stays loaded until `release`; load it first if necessary.

        Raises:
            ModelNotReadyException: the model is not loaded within `load_wait_s`; the load continues.
            ValidationError: the model's archive is missing or broken.
            ModelLoadError: the container did not load the model.
            httpx.TransportError: the container cannot be reached.
        """
        model = self._models.get(target)
        self._meter.count("ModelCacheHit", model is not None and model.loaded)
        if model is not None and model.loaded and not model.retiring:
            model.leases += 1
            model.last_used = time.monotonic()
            return model
        started = time.monotonic()
        try:
            return await self._acquire_after_load(target, started + self._settings.load_wait_s)
        finally:
            self._meter.duration("ModelLoadingWaitTime", time.monotonic() - started)

    def release(self, model: CachedModel) -> None:
        """End a call's lease of a model."""
        model.leases -= 1
        model.calls += 1
        model.last_used = time.monotonic()
        if model.leases == 0:
            self._models.changed()
            if not self._keep and model.loaded and not model.retiring and not self._closed:
                model.retiring = True
                self._in_background(self._eviction.drop(model))

    async def make_room_beside(self, model: CachedModel) -> bool:
        """Unload another idle model to free memory for a call of `model`; return False if no other model is idle."""
        return await self._eviction.make_room_beside(model)

    def close(self) -> None:
        """Cancel all loads, since the container has ended; calls that wait for a load get ModelLoadError."""
        self._closed = True
        self._models.changed()
        loads = {model.load for model in self.models if model.load is not None}
        for task in loads | self._background:
            task.cancel()

    async def _acquire_after_load(self, target: str, deadline: float) -> CachedModel:
        while (model := self._models.get(target)) is not None and model.retiring and not self._closed:
            try:
                await self._models.wait_for_change(deadline)
            except TimeoutError:
                raise model_not_ready(self._settings.load_wait_s) from None
        if self._closed:
            raise container_ended()
        model = model or self._begin(target)
        model.leases += 1
        try:
            if model.load is not None:
                await self._wait_for_load(model.load, deadline)
        except BaseException:
            model.leases -= 1
            self._models.changed()
            raise
        return model

    def _begin(self, target: str) -> CachedModel:
        model = self._models.add(target)
        model.load = asyncio.create_task(self._load(model))
        # Read the exception of a load that nobody waits for any more, or else asyncio logs it as never retrieved.
        model.load.add_done_callback(lambda task: task.cancelled() or task.exception())
        return model

    async def _wait_for_load(self, load: asyncio.Task[None], deadline: float) -> None:
        done, _ = await asyncio.wait({load}, timeout=max(0.0, deadline - time.monotonic()))
        if not done:
            raise model_not_ready(self._settings.load_wait_s)
        if load.cancelled():
            raise container_ended()
        load.result()

    async def _load(self, model: CachedModel) -> None:
        try:
            async with asyncio.timeout(self._settings.load_limit_s):
                await self._fetch_and_load(model)
        except BaseException as fault:
            self._log.note(f"{model.target} was not loaded: {fault or type(fault).__name__}")
            if not isinstance(fault, asyncio.CancelledError):
                # Delete the files of a failed load, so that the next call fetches them again. The model stays in the
                # cache until they are gone: a call that starts now must not mistake them for a complete copy.
                await self._disk.discard(model.model_id)
            if isinstance(fault, TimeoutError):
                self._in_background(self._abandon(model.model_id))
                raise load_timed_out(self._settings.load_limit_s) from fault
            raise
        finally:
            if not model.loaded:
                self._models.remove(model)
            model.load = None
            self._models.changed()

    async def _fetch_and_load(self, model: CachedModel) -> None:
        started = time.monotonic()
        source = S3Location(bucket=self._prefix.bucket, key=self._prefix.key + model.target.lstrip("/"))
        fetched = not self._disk.holds(model.model_id)
        folder = await self._disk.fetch(source, model.model_id)
        if fetched:
            self._meter.duration("ModelDownloadingTime", time.monotonic() - started)
        started = time.monotonic()
        await asyncio.sleep(self._faults.model_load_delay_s)
        answer = await self._post(model, folder)
        if answer.status_code == httpx.codes.INSUFFICIENT_STORAGE:
            answer = await self._eviction.load_with_room(model, lambda: self._post(model, folder))
        # 409: the container has the model loaded although this cache did not know it; that is as good as a load.
        if not answer.is_success and answer.status_code != httpx.codes.CONFLICT:
            raise ModelLoadError(answer.status_code, answer.text)
        self._meter.duration("ModelLoadingTime", time.monotonic() - started)
        self._log.note(f"{model.target} was loaded as {model.model_id} in {time.monotonic() - started:.2f} s")
        model.loaded = True

    async def _post(self, model: CachedModel, folder: Path) -> httpx.Response:
        model.posting = True
        try:
            return await self._api.load(model.model_id, folder, model.target)
        finally:
            model.posting = False
            self._models.changed()

    async def _abandon(self, model_id: str) -> None:
        await self._api.unload(model_id)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
