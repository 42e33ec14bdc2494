"""The pool of one model's workers: it rejects requests if no worker runs, and starts further workers under load.

Source: DJL Serving 0.36.0 (WorkLoadManager, WorkerPool, WorkerGroup), recorded (tests/data/djl_vectors,
tests/data/djl_lifecycle). A worker that has ended counts as a member of the pool for another minute. An ended worker is
replaced only by a request that arrives over a minute after the worker's end, and never after the model has failed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from local_aws.lmi.errors import CapacityExceeded, EngineFailure, Fault, NotReady, NoWorkers
from local_aws.lmi.workers.jobs import Job, JobQueue
from local_aws.lmi.workers.metrics import ModelMetrics
from local_aws.lmi.workers.worker import PoolContext, Worker
from local_aws.lmi.workers.worker_process import Failures

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from local_aws.lmi.answers import Answer
    from local_aws.lmi.settings import ModelSettings, ServerRules
    from local_aws.lmi.workers.connection import Content
    from local_aws.lmi.workers.starter import WorkerStarter


logger = logging.getLogger(__name__)


class WorkerPool:
    """The workers of a model, `min_workers` to `max_workers` of them; exceptions are those of the real server."""

    def __init__(self, name: str, settings: ModelSettings, rules: ServerRules, starter: WorkerStarter) -> None:
        self.min_workers = settings.min_workers
        self.max_workers = settings.max_workers
        self.metrics = ModelMetrics()
        self.failures = Failures(settings.retry_threshold, rules)
        self._name = name
        self._settings = settings
        self._rules = rules
        self._queue = JobQueue()
        self._context = PoolContext(
            name=name,
            settings=settings,
            rules=rules,
            starter=starter,
            failures=self.failures,
            queue=self._queue,
            metrics=self.metrics,
        )
        self._members: list[Worker] = []
        self._scaling = asyncio.Lock()
        self._starting: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

    @property
    def failed(self) -> bool:
        """Return True if the model has failed, because its workers failed more often than its threshold."""
        return self.failures.final

    @property
    def workers(self) -> Sequence[Worker]:
        """Return all workers of the pool, including ended workers that still count as members."""
        return self._members

    @property
    def waiting(self) -> int:
        """Return the number of requests that wait for a worker."""
        return len(self._queue)

    @property
    def alive(self) -> bool:
        """Return True if the pool has a process or can still start one; True after `close` means a leaked process."""
        return bool(self._starting) or any(worker.process.alive for worker in self._members)

    def clear_stale(self) -> None:
        """Remove the workers that ended over a minute ago (of the real server's time) from the pool."""
        now = time.monotonic()
        stale_s = self._rules.stale_s
        self._members = [worker for worker in self._members if worker.running or now - worker.stopped_at <= stale_s]

    async def start(self) -> None:
        """Start `min_workers` workers, one after another as the real server does.

        Raises:
            Fault: a worker cannot be started.
        """
        for _ in range(self.min_workers):
            await self._add(permanent=True)

    async def submit(
        self,
        properties: dict[str, str],
        contents: Sequence[Content],
        on_queued: Callable[[Job], None] | None = None,
    ) -> Answer:
        """Queue a request and return its answer; `on_queued` gets the request's job, whose `leave` ends the wait.

        Raises:
            NotReady: the model has failed.
            NoWorkers: the model has been scaled to no workers.
            CapacityExceeded: the queue is full, or no worker runs; then a worker is started, if the pool has a place.
            Fault: this worker cannot be started, or the worker that has the request could not answer.
            Unanswered: the caller left, or waited longer than the server holds the caller's connection.
        """
        if self.failed:
            raise NotReady(self._name)
        if self.max_workers == 0:
            raise NoWorkers(self._name)
        running = self._running()
        if self._refuses(running):
            await self._scale_up()
            raise CapacityExceeded(self._name)
        job = Job(properties, contents, asyncio.get_running_loop().create_future())
        if on_queued is not None:
            on_queued(job)
        self._queue.offer(job)
        if len(running) < len(self._members):
            self.clear_stale()
        if len(running) < self.max_workers and len(self._queue) > 2 * self._settings.batch_size:
            self._spawn(self._scale_up_quietly())
        answer = await job.future
        self.metrics.answered(job.age_s)
        return answer

    async def scale(self, min_workers: int, max_workers: int) -> None:
        """Change the pool's bounds (a negative number keeps a bound), and start or end permanent workers to fit.

        An ended worker counts as a member for a minute, so scaling to zero and back within that minute starts no
        worker.

        Raises:
            Fault: a worker cannot be started.
        """
        self.clear_stale()
        if min_workers >= 0:
            self.min_workers = min_workers
        if max_workers >= 0:
            self.max_workers = max_workers
        permanent = [worker for worker in self._members if worker.permanent]
        for worker in permanent[self.min_workers :]:
            await worker.shut_down()
        for _ in range(self.min_workers - len(permanent)):
            await self._add(permanent=True)

    async def close(self) -> None:
        """End every worker, because the model is unloaded; waiting requests are never answered.

        A worker that is still starting is not in the pool yet: its start continues, and the worker keeps running
        (tested on a real server). The call returns once the other workers have ended; if a failed restart has locked
        one of them, it never returns.
        """
        for worker in self._members:
            await worker.shut_down()

    def end(self) -> None:
        """End every worker and its process without waiting, because the server itself ends."""
        self._ended = True
        for task in (*self._starting, *self._tasks):
            task.cancel()
        for worker in self._members:
            worker.end()
        for job in self._queue.drain():
            job.give_up()

    def _running(self) -> list[Worker]:
        return [worker for worker in self._members if worker.running]

    def _refuses(self, running: Sequence[Worker]) -> bool:
        room = self._settings.queue_size - len(self._queue)
        return room < 1 or not running or (room == 1 and all(worker.busy for worker in running))

    async def _scale_up(self) -> None:
        """Start a temporary worker if the pool has fewer than `max_workers` members; one such start at a time."""
        async with self._scaling:
            self.clear_stale()
            if len(self._running()) < self.max_workers and len(self._members) < self.max_workers:
                await asyncio.sleep(self._rules.interpreter_s)
                await self._add(permanent=False)

    async def _scale_up_quietly(self) -> None:
        try:
            await self._scale_up()
        except Fault as fault:
            logger.warning("%s: no further worker: %s", self._name, fault)

    async def _add(self, *, permanent: bool) -> None:
        worker = Worker(self._context, permanent=permanent)
        start = asyncio.create_task(worker.start())
        self._starting.add(start)
        try:
            await start
        except asyncio.CancelledError:
            start.cancel()
            if self._ended:
                raise EngineFailure("Worker startup cancelled.") from None
            raise
        finally:
            self._starting.discard(start)
        self._members.append(worker)
        worker.serve()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
