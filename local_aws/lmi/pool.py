"""The workers of one model: who runs, who takes which request, who replaces whom.

Source: DJL Serving 0.36.0 (WorkLoadManager, WorkerPool, WorkerThread), recorded (tests/data/djl_vectors). One thing
differs on purpose: a worker that dies or takes longer than `predict_timeout` is replaced at once, where the real server
gives the model up (or, with `retry_threshold`, answers 503 for about a minute).
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING

from local_aws.lmi.faults import CapacityExceeded, EngineFailure, Fault, NotReady, WorkerFailure
from local_aws.lmi.job_queue import JobQueue
from local_aws.lmi.jobs import Answer, AsyncAnswer, Job, fail, join, split, take_part
from local_aws.lmi.metrics import ModelMetrics
from local_aws.lmi.pool_worker import Worker

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from local_aws.lmi.frames import Content, Frame
    from local_aws.lmi.model_settings import ModelSettings
    from local_aws.lmi.starter import WorkerStarter
    from local_aws.lmi.worker_link import WorkerLink

logger = logging.getLogger(__name__)

_TIMEOUT = "java.util.concurrent.TimeoutException"
_SHUTTING_DOWN = "Worker shutting down"
_STALE_S = 60.0
_LEAST_RESTARTS = 3
_RESTART_PAUSE_S = 0.2


class WorkerPool:
    """Keeps between `min_workers` and `max_workers` alive; `failed` once no worker can be started any more."""

    def __init__(self, name: str, settings: ModelSettings, starter: WorkerStarter) -> None:
        self.min_workers = settings.min_workers
        self.max_workers = settings.max_workers
        self.failed = False
        self.metrics = ModelMetrics()
        self._name = name
        self._settings = settings
        self._starter = starter
        self._queue = JobQueue()
        self._members: list[Worker] = []
        self._starting: set[asyncio.Task[tuple[int, WorkerLink]]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._replacing = 0
        self._closed = False

    @property
    def workers(self) -> Sequence[Worker]:
        """All members; one that has ended stays for a minute, as in the real server, unless it was replaced."""
        now = time.monotonic()
        self._members = [w for w in self._members if w.running or now - w.stopped_at < _STALE_S]
        return self._members

    @property
    def waiting(self) -> int:
        """How many requests wait for a worker."""
        return len(self._queue)

    async def start(self) -> None:
        """Starts the least number of workers.

        Raises:
            Fault: one of them cannot be started; none is left then.
        """
        results = await asyncio.gather(
            *(self._add(permanent=True) for _ in range(self.min_workers)), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            self.failed = True
            self.close()
            raise failures[0]

    async def submit(self, properties: dict[str, str], contents: Sequence[Content]) -> Answer:
        """Has a request answered.

        Raises:
            NotReady: the model has failed.
            CapacityExceeded: the queue is full, or no worker is alive (one is then started).
            WorkerFailure: the worker died, was too slow, or the model is being unloaded.
        """
        if self.failed or (self._replacing and not self._settings.retry_threshold and not self._running()):
            raise NotReady(self._name)
        if self._refuses():
            if not self._starting:
                await self._scale_up()
            raise CapacityExceeded(self._name)
        job = Job(properties, contents, asyncio.get_running_loop().create_future())
        self._queue.offer(job)
        if self._needs_another():
            self._spawn(self._scale_up())
        answer = await job.future
        self.metrics.answered(job.age_s)
        return answer

    async def scale(self, min_workers: int, max_workers: int) -> None:
        """Changes the bounds (a negative number keeps one) and starts or ends permanent workers to fit."""
        if min_workers >= 0:
            self.min_workers = min_workers
        if max_workers >= 0:
            self.max_workers = max_workers
        permanent = [worker for worker in self.workers if worker.permanent and worker.running]
        for worker in permanent[self.min_workers :]:
            self._retire(worker)
        await asyncio.gather(*(self._add(permanent=True) for _ in range(self.min_workers - len(permanent))))

    def close(self) -> None:
        """Ends every worker; requests that wait or run are answered with an error."""
        self._closed = True
        for task in (*self._starting, *self._tasks):
            task.cancel()
        for worker in self._members:
            if worker.running:
                self._retire(worker)
        self._fail_waiting(WorkerFailure(_SHUTTING_DOWN))

    def _running(self) -> list[Worker]:
        return [worker for worker in self._members if worker.running]

    def _refuses(self) -> bool:
        room = self._settings.queue_size - len(self._queue)
        running = self._running()
        return room < 1 or not running or (room == 1 and all(worker.busy for worker in running))

    def _needs_another(self) -> bool:
        return (
            len(self._running()) + len(self._starting) < self.max_workers
            and len(self._queue) > 2 * self._settings.batch_size
        )

    async def _scale_up(self) -> None:
        if len(self.workers) + len(self._starting) >= self.max_workers:
            return
        try:
            await self._add(permanent=False)
        except Fault as fault:
            logger.warning("%s: no further worker: %s", self._name, fault)

    async def _add(self, *, permanent: bool) -> None:
        worker = Worker(permanent)
        start = asyncio.create_task(self._starter.start(lambda: self._lost(worker)))
        self._starting.add(start)
        try:
            worker.pid, worker.link = await start
        except asyncio.CancelledError:
            start.cancel()
            if self._closed:
                raise EngineFailure("Worker startup cancelled.") from None
            raise
        finally:
            self._starting.discard(start)
        self._members.append(worker)
        if worker.running and not self._closed:
            worker.serving = asyncio.create_task(self._serve(worker, worker.link))
            worker.serving.add_done_callback(lambda task: self._served(worker, task))
        else:
            self._retire(worker)

    async def _serve(self, worker: Worker, link: WorkerLink) -> None:
        settings = self._settings
        idle_s = None if worker.permanent else settings.max_idle_s
        size, delay_s = (1, 0.0) if settings.async_mode else (settings.batch_size, settings.max_batch_delay_ms / 1000)
        while worker.running:
            jobs = await self._queue.batch(size, delay_s, idle_s)
            if not jobs:
                self._retire(worker)
                continue
            try:
                self.metrics.batch(job.age_s for job in jobs)
                if settings.async_mode:
                    self._hand_over(link, jobs[0])
                else:
                    await self._run(worker, link, jobs)
            except Exception:
                fail(jobs, WorkerFailure(_SHUTTING_DOWN))
                raise

    async def _run(self, worker: Worker, link: WorkerLink, jobs: Sequence[Job]) -> None:
        worker.busy = True
        try:
            async with asyncio.timeout(self._settings.predict_timeout_s):
                frame = await link.ask(*join(jobs))
            answers = split(frame, len(jobs))
        except TimeoutError:
            fail(jobs, WorkerFailure(_TIMEOUT))
            self._starter.kill(worker.pid)
            self._lost(worker)
        except Fault as fault:
            fail(jobs, WorkerFailure(_SHUTTING_DOWN) if self._closed else fault)
        else:
            for job, answer in zip(jobs, answers, strict=True):
                if not job.future.done():
                    job.future.set_result(answer)
        finally:
            worker.busy = False

    def _served(self, worker: Worker, task: asyncio.Task[None]) -> None:
        """A worker is served no more; through a fault of ours too the model must not be left without one."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            logger.error("%s: serving worker %d failed", self._name, worker.number, exc_info=fault)
            self._starter.kill(worker.pid)
            self._lost(worker)

    def _hand_over(self, link: WorkerLink, job: Job) -> None:
        """Gives a request to an asynchronous handler, which answers in its own time."""
        tracking = {"request_tracking_id": str(uuid.uuid4())}
        answer = AsyncAnswer(dict(tracking))
        timer = asyncio.get_running_loop().call_later(
            self._settings.predict_timeout_s, fail, [job], WorkerFailure(_TIMEOUT)
        )

        def take(frame: Frame | None) -> bool:
            try:
                take_part(job, answer, frame)
            except Fault as fault:
                fail([job], WorkerFailure(_SHUTTING_DOWN) if self._closed else fault)
            if job.future.done():
                timer.cancel()
            return job.future.done()

        try:
            link.call(job.properties | tracking, job.contents, take)
        except WorkerFailure as failure:
            fail([job], failure)

    def _lost(self, worker: Worker) -> None:
        """A worker died or was killed: it is replaced."""
        if not worker.running:
            return
        worker.running = False
        worker.stopped_at = time.monotonic()
        logger.warning("%s: worker %d (pid %d) is gone", self._name, worker.number, worker.pid)
        # One that is busy learns of it by its call; cancelling it there would leave its requests unanswered.
        if worker.serving is not None and not worker.busy:
            worker.serving.cancel()
        if worker in self._members and not self._closed:
            self._spawn(self._replace(worker))

    async def _replace(self, dead: Worker) -> None:
        self._replacing += 1
        try:
            restarted = await self._restart(permanent=dead.permanent)
        finally:
            self._replacing -= 1
        if restarted:
            self._members = [worker for worker in self._members if worker is not dead]
        elif not self._running():
            self.failed = True
            self._fail_waiting(NotReady(self._name))

    async def _restart(self, *, permanent: bool) -> bool:
        attempts = max(_LEAST_RESTARTS, self._settings.retry_threshold)
        for attempt in range(attempts):
            try:
                await self._add(permanent=permanent)
            except Fault as fault:
                logger.warning("%s: restart %d of %d failed: %s", self._name, attempt + 1, attempts, fault)
                await asyncio.sleep(_RESTART_PAUSE_S * 2**attempt)
            else:
                return True
        return False

    def _retire(self, worker: Worker) -> None:
        """Ends a worker on purpose; the one it was stays listed for a while."""
        worker.running = False
        worker.stopped_at = time.monotonic()
        if worker.serving is not None and not worker.busy and worker.serving is not asyncio.current_task():
            worker.serving.cancel()
        if worker.link is not None:
            worker.link.close()
        self._starter.kill(worker.pid)

    def _fail_waiting(self, fault: Fault) -> None:
        fail(self._queue.drain(), fault)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
