"""Replicas: the server containers of an endpoint, their supervision and replacement, and the choice for a call.

An instance of a variant that names a model runs one replica; an instance of a variant made of inference components runs
one replica for each copy placed on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from typing import TYPE_CHECKING, Protocol

import httpx

from local_aws.sagemaker.containers.api import ContainerApi
from local_aws.sagemaker.errors import DeploymentError, ValidationError, no_instance_ready
from local_aws.sagemaker.model_cache.cache import ModelCache
from local_aws.sagemaker.model_cache.disk import ModelDisk
from local_aws.sagemaker.telemetry.logs import InstanceLog
from local_aws.sagemaker.telemetry.metrics import INSTANCE_METRICS

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence

    from local_aws.sagemaker.containers.api import ContainerProcess
    from local_aws.sagemaker.hosting.context import ContainerContext
    from local_aws.sagemaker.hosting.endpoint_snapshot import ContainerPlan
    from local_aws.sagemaker.hosting.placement import Placement


_logger = logging.getLogger(__name__)

_RESTART_PAUSE_S = 1.0
_REPORT_INTERVAL_S = 10.0
_SINGLE_MODEL = "model"


class Replica:
    """One container, which is replaced when it fails, and its models; `in_flight` counts the calls it works on."""

    def __init__(self, placement: Placement, plan: ContainerPlan, context: ContainerContext) -> None:
        self.placement = placement
        self.in_flight = 0
        self.restarts = 0
        self.cache: ModelCache | None = None
        self.log_file = context.state_dir / "logs" / placement.endpoint_name / f"{placement.replica_id}.log"
        self._log = InstanceLog(self.log_file)
        self._plan = plan
        self._context = context
        self._out_of_service = False
        self._meter = context.metrics.variant_meter(placement.endpoint_name, placement.variant_name)
        self._folder = context.state_dir / "endpoints" / placement.endpoint_name / placement.replica_id
        self._store = self._folder / "store"
        self._disk = ModelDisk(context.clients, self._folder / "models", plan.role)
        self._container: ContainerProcess | None = None
        self._api: ContainerApi | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._reported: int | None = None
        self._next_report = 0.0
        self._suspicion = asyncio.Event()
        self._idle = asyncio.Event()

    @property
    def ready(self) -> bool:
        """True if the replica can take calls: its container runs, and failed pings have not put it out of service."""
        return self._alive and not self._out_of_service

    @property
    def _alive(self) -> bool:
        return self._container is not None and self._container.alive

    @property
    def pid(self) -> int | None:
        """The process id of the container, None while the replica has no container."""
        return None if self._container is None else self._container.pid

    @property
    def model_count(self) -> int:
        """The number of models that are loaded or being loaded in the container; 0 if it is not multi-model."""
        return 0 if self.cache is None else len(self.cache.models)

    def holds(self, target: str | None) -> bool:
        """Return True if the replica has a model loaded or is loading it."""
        return self.cache is not None and target is not None and self.cache.holds(target)

    async def start(self) -> None:
        """Start the container and, from then on, start it again whenever it dies.

        Raises:
            DeploymentError: a single model's archive cannot be fetched, or the container does not answer pings.
        """
        stream = f"{self.placement.variant_name}/{self.placement.replica_id}"
        self._context.logs.attach(self.placement.log_group, stream, self.log_file)
        await self._fill_store()
        try:
            await self._launch()
        except Exception as fault:
            _logger.exception("the container of %s did not start", self.placement.replica_id)
            self._log.note(f"container did not start: {fault}")
            raise DeploymentError(self.placement.start_failure) from fault
        self._supervisor = asyncio.create_task(self._supervise())

    async def stop(self) -> None:
        """Stop the container, send the rest of its log and delete its folder."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        await self._end_container()
        await self._context.logs.detach(self.log_file)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def invoke(self, target: str | None, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Pass a call on to the container and return its answer.

        Raises:
            httpx.TransportError: the container cannot be reached, or did not answer.
            ModelNotReadyException, ValidationError, ModelLoadError: see `ModelCache.acquire`.
        """
        self.in_flight += 1
        try:
            if self._api is None:
                raise httpx.ConnectError(f"{self.placement.replica_id} has no container")
            if self.cache is None or target is None:
                return await self._api.invoke(None, body, headers)
            return await self._invoke_model(self._api, self.cache, target, body, headers)
        except httpx.TransportError:
            self._suspicion.set()
            raise
        finally:
            self.in_flight -= 1
            if self.in_flight == 0:
                self._idle.set()

    async def loaded(self) -> dict[str, str]:
        """Return the loaded models: each model's name in the container, by the name that callers use.

        Raises:
            httpx.HTTPError: the container does not list its models.
        """
        if self.cache is not None:
            return {model.target: model.model_id for model in self.cache.models if model.loaded}
        return {} if self._api is None else {name: name for name in await self._api.models()}

    async def worker_fault(self, model_id: str, fault: str) -> httpx.Response:
        """Inject a fault into the worker process of a model; `model_id` is the model's name in the container.

        Raises:
            httpx.TransportError: the container does not run, or does not answer.
        """
        if self._api is None:
            raise httpx.ConnectError(f"{self.placement.replica_id} has no container")
        self._log.note(f"fault switch: {fault} in a worker of {model_id}")
        return await self._api.worker_fault(model_id, fault)

    async def drained(self) -> None:
        """Wait until no call is in flight; the caller makes sure that no new calls come."""
        while self.in_flight:
            self._idle.clear()
            await self._idle.wait()

    def report(self) -> None:
        """Record LoadedModelCount if the number of loaded models has changed, and at least every 10 seconds."""
        loaded = 0 if self.cache is None else self.cache.loaded_count
        now = time.monotonic()
        if self._plan.multi_model and (loaded != self._reported or now >= self._next_report):
            self._meter.count("LoadedModelCount", loaded, namespace=INSTANCE_METRICS)
            self._reported, self._next_report = loaded, now + _REPORT_INTERVAL_S

    @staticmethod
    async def _invoke_model(
        api: ContainerApi, cache: ModelCache, target: str, body: bytes, headers: Mapping[str, str]
    ) -> httpx.Response:
        model = await cache.acquire(target)
        try:
            answer = await api.invoke(model.model_id, body, headers)
            while answer.status_code == httpx.codes.INSUFFICIENT_STORAGE and await cache.make_room_beside(model):
                answer = await api.invoke(model.model_id, body, headers)
            return answer
        finally:
            cache.release(model)

    async def _fill_store(self) -> None:
        if self._plan.multi_model or self._plan.model_data is None:
            # The store of a multi-model container stays empty: the container would load its content at the start, but
            # models that were fetched before must be loaded only at their next call.
            self._store.mkdir(parents=True, exist_ok=True)
            return
        try:
            self._store = await self._disk.fetch(self._plan.model_data, _SINGLE_MODEL)
        except ValidationError as fault:
            raise DeploymentError(str(fault)) from fault

    async def _launch(self) -> None:
        context, plan = self._context, self._plan
        await asyncio.sleep(context.faults.container_start_delay_s)
        self._container = await context.start_container(
            model_store=self._store,
            multi_model=plan.multi_model,
            hub_roots=context.hub_roots,
            log_file=self.log_file,
            environment={**context.clients.container_environment(plan.role), **plan.environment},
            memory_mb=plan.memory_mb,
            start_timeout_s=plan.startup_timeout_s,
        )
        self._log.note(f"container started, process {self._container.pid}")
        self._api = ContainerApi(self._container, context.http, context.settings.invocation_timeout_s)
        if plan.multi_model and plan.model_data is not None:
            self.cache = ModelCache(
                api=self._api,
                disk=self._disk,
                log=self._log,
                prefix=plan.model_data,
                settings=context.settings,
                faults=context.faults,
                meter=self._meter,
                keep=plan.cache_models,
            )

    async def _end_container(self) -> None:
        if self.cache is not None:
            self.cache.close()
        container, self._container, self._api, self.cache = self._container, None, None, None
        if container is not None:
            await container.stop()

    async def _supervise(self) -> None:
        while True:
            trouble = await self._trouble()
            self._out_of_service = True
            delay_s = self._context.faults.replacement_delay_s
            self._log.note(f"out of service, no call comes here: {trouble}; another container starts in {delay_s:g} s")
            if not self._alive:
                await self._end_container()
            await asyncio.sleep(delay_s)
            await self._replace_container()
            self._out_of_service = False

    async def _trouble(self) -> str:
        """Wait until the container has died or failed too many pings in a row; return the reason."""
        failures, pinged = 0, time.monotonic()
        while True:
            await self._pause(min(self._context.settings.alive_interval_s, self._context.faults.ping_interval_s))
            if not self._alive or self._api is None:
                return "the container's process has ended"
            if time.monotonic() < pinged + self._context.faults.ping_interval_s:
                continue
            ping, pinged = await self._api.ping(), time.monotonic()
            failures = 0 if ping.healthy else failures + 1
            if failures:
                self._log.note(f"/ping failed, {failures} in a row: {ping.said}")
            if failures >= self._context.faults.ping_failures:
                return f"/ping failed {failures} times in a row, the last time with {ping.said}"

    async def _pause(self, seconds: float) -> None:
        """Wait for some seconds, or until a call fails to reach the container, whichever is first."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._suspicion.wait(), seconds)
        self._suspicion.clear()

    async def _replace_container(self) -> None:
        """Stop the container, which ends its running calls, and start another; repeat until a container starts.

        The instance's disk is emptied. Whether SageMaker keeps the disk for the new container is not known. The
        emulator takes the slower case: models are fetched again.
        """
        if self.in_flight:
            self._log.note(f"the container ends with {self.in_flight} calls in flight")
        while True:
            try:
                await self._end_container()
                await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
                await self._fill_store()
                await self._launch()
            except Exception as fault:
                _logger.exception("the container of %s did not start again", self.placement.replica_id)
                self._log.note(f"container did not start again: {fault}")
                await asyncio.sleep(_RESTART_PAUSE_S)
            else:
                self.restarts += 1
                return


# A container that has a model gets the model's calls until its calls in flight exceed those of the least busy container
# by this number; then the least busy container loads the model too (AWS: "Multi-Model Endpoints": busy models get
# copies on further instances).
_SPREAD_IN_FLIGHT = 8


class Destination(Protocol):
    """The target of a call: a production variant, or the copies of an inference component."""

    async def invoke(self, target: str | None, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Pass a call to a container and return its answer; raises as `invoke_one` does."""


async def invoke_one(
    replicas: Iterable[Replica], owner: str, *, target: str | None, body: bytes, headers: Mapping[str, str]
) -> httpx.Response:
    """Pass a call to a container and return its answer; if one cannot be reached, try another.

    `owner` names the variant or component in the text of an error.

    Raises:
        ServiceUnavailable: no container can be reached.
        httpx.TransportError: after the call had been sent, the connection broke or no answer came.
    """
    tried: set[Replica] = set()
    while True:
        ready = [replica for replica in replicas if replica.ready and replica not in tried]
        if not ready:
            raise no_instance_ready(owner)
        replica = choose(ready, target)
        try:
            return await replica.invoke(target, body, headers)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            tried.add(replica)


def choose(ready: Collection[Replica], target: str | None) -> Replica:
    """Choose the container for a call: one that has the model, unless the least busy container is much less busy."""
    idlest = min(ready, key=lambda replica: replica.in_flight)
    holders = [replica for replica in ready if replica.holds(target)]
    if not holders:
        return min(ready, key=lambda replica: (replica.model_count, replica.in_flight))
    holder = min(holders, key=lambda replica: replica.in_flight)
    return holder if holder.in_flight - idlest.in_flight < _SPREAD_IN_FLIGHT else idlest


async def all_of(starts: Iterable[Coroutine[None, None, None]]) -> None:
    """Run all coroutines to their ends, then raise the first failure. If cancelled, cancel all of them and wait."""
    tasks = [asyncio.create_task(start) for start in starts]
    if not tasks:
        return
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    for failure in [task.exception() for task in tasks]:
        if failure is not None:
            raise failure


async def drain_and_stop(replicas: Sequence[Replica], limit_s: float) -> None:
    """Stop containers after their running calls have ended or the limit is over; callers must send no new calls."""
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(replica.drained() for replica in replicas)), limit_s)
    finally:
        # Stop the containers also if the wait is cancelled: no other object refers to them any more.
        await asyncio.gather(*(replica.stop() for replica in replicas))
