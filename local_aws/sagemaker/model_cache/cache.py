"""A model in a container's memory, as the instance keeps account of it.

The models that one instance of a multi-model endpoint has in memory.

AWS: "Multi-Model Endpoints", "Invoke a Multi-Model Endpoint" and "Set … model caching behavior". A model is fetched
and loaded by its first call and stays until memory is needed (the container answers 507), when the least recently
used one is unloaded. Concurrent first calls share one load.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx

from local_aws.sagemaker.errors import ModelLoadError, container_ended, load_timed_out, model_not_ready
from local_aws.sagemaker.model_cache.disk import S3Location

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from pathlib import Path

    from local_aws.sagemaker.debug.fault_injection import Switches
    from local_aws.sagemaker.hosting.container import ContainerApi
    from local_aws.sagemaker.model_cache.disk import ModelDisk
    from local_aws.sagemaker.settings import Settings
    from local_aws.sagemaker.telemetry.logs import InstanceLog
    from local_aws.sagemaker.telemetry.metrics import Meter


@dataclass(eq=False)
class CachedModel:
    """A model that is being loaded or is loaded; `leases` counts the calls that wait for it or run on it."""

    target: str
    model_id: str
    loaded: bool = False
    retiring: bool = False
    posting: bool = False
    leases: int = 0
    calls: int = 0
    last_used: float = field(default_factory=time.monotonic)
    load: asyncio.Task[None] | None = None


def model_id_of(target: str) -> str:
    """The name by which the container knows a model: opaque, as SageMaker's is, but the same for equal targets."""
    return hashlib.sha256(target.encode()).hexdigest()[:32]


_OUT_OF_MEMORY = 507


class ModelCache:
    """Loads, counts and unloads models in one container. `prefix` is the endpoint's ModelDataUrl."""

    def __init__(
        self,
        *,
        api: ContainerApi,
        disk: ModelDisk,
        log: InstanceLog,
        prefix: S3Location,
        settings: Settings,
        switches: Switches,
        meter: Meter,
        keep: bool,
    ) -> None:
        self._api = api
        self._disk = disk
        self._log = log
        self._prefix = prefix
        self._settings = settings
        self._switches = switches
        self._meter = meter
        self._keep = keep
        self._models: dict[str, CachedModel] = {}
        self._making_room = asyncio.Lock()
        self._change = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False
        self.evictions = 0

    @property
    def models(self) -> Sequence[CachedModel]:
        """What is loaded or being loaded, the most recently used last."""
        return sorted(self._models.values(), key=lambda model: model.last_used)

    @property
    def loaded_count(self) -> int:
        """How many models are loaded."""
        return sum(model.loaded for model in self._models.values())

    def holds(self, target: str) -> bool:
        """Whether a model is loaded or being loaded."""
        return target in self._models

    async def acquire(self, target: str) -> CachedModel:
        """A loaded model that stays loaded until `release`.

        Raises:
            ModelNotReadyException: it is not loaded within `load_wait_s`; loading goes on.
            ValidationError: its archive is missing or broken.
            ModelLoadError: the container would not load it.
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
        """End a call's use of a model."""
        model.leases -= 1
        model.calls += 1
        model.last_used = time.monotonic()
        if model.leases == 0:
            self._pulse()
            if not self._keep and model.loaded and not model.retiring and not self._closed:
                model.retiring = True
                self._in_background(self._drop(model))

    async def make_room_beside(self, model: CachedModel) -> bool:
        """Unload the least recently used idle model other than this one; False if there is none.

        Only idle ones, since the caller holds a lease itself: two callers could wait for each other's for ever.
        """
        victim = self._victim(model)
        if victim is None or victim.leases:
            return False
        await self._evict(victim)
        return True

    def close(self) -> None:
        """Give up what is still being loaded: the container has ended. Whoever waits for it gets ModelLoadError."""
        self._closed = True
        self._pulse()
        loads = {model.load for model in self._models.values() if model.load is not None}
        for task in loads | self._background:
            task.cancel()

    async def _acquire_after_load(self, target: str, deadline: float) -> CachedModel:
        while (model := self._models.get(target)) is not None and model.retiring and not self._closed:
            await self._wait_for_change(deadline)
        if self._closed:
            raise container_ended()
        model = model or self._begin(target)
        model.leases += 1
        try:
            if model.load is not None:
                await self._wait_for_load(model.load, deadline)
        except BaseException:
            model.leases -= 1
            self._pulse()
            raise
        return model

    def _begin(self, target: str) -> CachedModel:
        model = CachedModel(target=target, model_id=model_id_of(target))
        self._models[target] = model
        model.load = asyncio.create_task(self._load(model))
        # A load that fails after every caller has got its 429 has no one left to read the reason.
        model.load.add_done_callback(lambda task: task.cancelled() or task.exception())
        return model

    async def _wait_for_load(self, load: asyncio.Task[None], deadline: float) -> None:
        done, _ = await asyncio.wait({load}, timeout=max(0.0, deadline - time.monotonic()))
        if not done:
            raise model_not_ready(self._settings.load_wait_s)
        if load.cancelled():
            raise container_ended()
        load.result()

    async def _wait_for_change(self, deadline: float | None = None) -> None:
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            await asyncio.wait_for(self._change.wait(), remaining)
        except TimeoutError:
            raise model_not_ready(self._settings.load_wait_s) from None

    async def _load(self, model: CachedModel) -> None:
        try:
            async with asyncio.timeout(self._settings.load_limit_s):
                await self._fetch_and_load(model)
        except BaseException as fault:
            self._log.note(f"{model.target} was not loaded: {fault or type(fault).__name__}")
            if not isinstance(fault, asyncio.CancelledError):
                # The next call starts afresh: what could not be loaded is no copy worth keeping. Until it is gone the
                # model stays, so that no call takes what is being removed for a copy.
                await self._disk.discard(model.model_id)
            if isinstance(fault, TimeoutError):
                self._in_background(self._abandon(model.model_id))
                raise load_timed_out(self._settings.load_limit_s) from fault
            raise
        finally:
            if not model.loaded:
                self._models.pop(model.target, None)
            model.load = None
            self._pulse()

    async def _fetch_and_load(self, model: CachedModel) -> None:
        started = time.monotonic()
        source = S3Location(bucket=self._prefix.bucket, key=self._prefix.key + model.target.lstrip("/"))
        fetched = not self._disk.holds(model.model_id)
        folder = await self._disk.fetch(source, model.model_id)
        if fetched:
            self._meter.duration("ModelDownloadingTime", time.monotonic() - started)
        started = time.monotonic()
        await asyncio.sleep(self._switches.model_load_delay_s)
        answer = await self._post(model, folder)
        if answer.status_code == _OUT_OF_MEMORY:
            answer = await self._post_with_room(model, folder)
        # 409: loaded already; the container and this cache have lost each other, and the model is what counts.
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
            self._pulse()

    async def _post_with_room(self, model: CachedModel, folder: Path) -> httpx.Response:
        """Load while unloading others until it fits; the container's last refusal if nothing is left to unload."""
        async with self._making_room:
            while (answer := await self._post(model, folder)).status_code == _OUT_OF_MEMORY:
                if (victim := self._victim(model)) is not None:
                    await self._evict(victim)
                elif any(other.posting for other in self._models.values()):
                    await self._wait_for_change()
                else:
                    break
            return answer

    def _victim(self, keep: CachedModel) -> CachedModel | None:
        """The least recently used loaded model, an idle one if there is one."""
        candidates = [m for m in self.models if m.loaded and not m.retiring and m is not keep]
        return next((m for m in candidates if m.leases == 0), candidates[0] if candidates else None)

    async def _unload(self, model: CachedModel, *, keep_copy: bool) -> None:
        # From here on new calls wait and load it anew, so that a busy model cannot keep others out for ever.
        model.retiring = True
        while model.leases:
            await self._wait_for_change()
        started = time.monotonic()
        try:
            await self._api.unload(model.model_id)
            self._meter.duration("ModelUnloadingTime", time.monotonic() - started)
            self._log.note(f"{model.target} was unloaded")
            if not keep_copy:
                # Before the next call may load it, which else would take for a copy what is being removed.
                await self._disk.discard(model.model_id)
        finally:
            self._models.pop(model.target, None)
            self._pulse()

    async def _evict(self, model: CachedModel) -> None:
        await self._unload(model, keep_copy=True)
        self.evictions += 1

    async def _drop(self, model: CachedModel) -> None:
        """Unload a model and delete its copy, as SageMaker does after a call where caching is disabled."""
        await self._unload(model, keep_copy=False)

    async def _abandon(self, model_id: str) -> None:
        await self._api.unload(model_id)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _pulse(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
