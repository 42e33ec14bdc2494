"""One worker of a model, which takes requests from the queue and lets its process answer them.

A worker ends when its process fails in a synchronous call, when the model is scaled down or unloaded, and, if the
worker is temporary, when it has been idle too long. A process that dies between two requests does not end its worker.
Source: DJL Serving 0.36.0 (WorkerThread, BatchAggregator), recorded (tests/data/djl_lifecycle).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_aws.lmi.errors import Fault, TranslateFault, WorkerFailure
from local_aws.lmi.workers.jobs import AsyncAnswer, fail, join, split, take_part
from local_aws.lmi.workers.worker_process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local_aws.lmi.settings import ModelSettings, ServerRules
    from local_aws.lmi.workers.connection import Frame
    from local_aws.lmi.workers.jobs import Job, JobQueue
    from local_aws.lmi.workers.metrics import ModelMetrics
    from local_aws.lmi.workers.starter import WorkerStarter
    from local_aws.lmi.workers.worker_process import Failures


logger = logging.getLogger(__name__)

_SHUTTING_DOWN = "Worker shutting down"
# The real server takes some milliseconds to reject a request (recorded: 24), while others gather in the queue.
_REFUSAL_S = 0.01
# The real server also takes milliseconds to hand a request to an asynchronous handler; without this time, a burst of
# requests would start no temporary worker (28).
_HAND_OVER_S = 0.005

_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolContext:
    """The parts that all workers of a pool share."""

    name: str
    settings: ModelSettings
    rules: ServerRules
    starter: WorkerStarter
    failures: Failures
    queue: JobQueue
    metrics: ModelMetrics


class Worker:
    """One worker of a pool; a `permanent` worker does not end when idle; `started_at` is in seconds since 1970.

    A worker is `running` until it ends, even while its process is dead or loading; it is `busy` during a request.
    """

    def __init__(self, context: PoolContext, *, permanent: bool) -> None:
        """Create a worker with the next number; `start` starts its process."""
        self.permanent = permanent
        self.number = next(_numbers)
        self.started_at = time.time()
        self.running = True
        self.busy = False
        self.stopped_at = 0.0
        asynchronous = context.settings.async_mode
        self.process = WorkerProcess(context.starter, context.failures, context.rules, asynchronous=asynchronous)
        self._context = context
        self._idle_s = None if permanent else context.rules.on_our_clock(context.settings.max_idle_s)
        self._jobs: Sequence[Job] = ()
        self._used_at = time.monotonic()
        self._serving: asyncio.Task[None] | None = None
        self._ending = False

    async def start(self) -> None:
        """Start the worker's process, which loads the model.

        Raises:
            Fault: the start failed; see WorkerProcess.start.
        """
        await self.process.start()

    def serve(self) -> None:
        """Take requests from the queue from now on."""
        # The real server counts the load's time as idle. The load takes real time here, so its time is converted.
        loaded_s = time.monotonic() - self._used_at
        self._used_at = time.monotonic() - self._context.rules.on_our_clock(loaded_s)
        self._serving = asyncio.create_task(self._serve())

    async def shut_down(self) -> None:
        """End the worker and its process; its current requests are answered 503. A second call is allowed.

        If the worker is synchronous and busy, its process is then started again, but no model lists it (tested on a
        real server). The call returns once the process has ended; if a failed start has locked the worker, it never
        returns.
        """
        self._stop()
        if self._interrupt():
            await self.process.interrupt()
        else:
            await self.process.stop()

    def end(self) -> None:
        """End the worker and its process without waiting, because the server itself ends."""
        self._stop()
        self._interrupt()
        self.process.end()

    def _interrupt(self) -> bool:
        """Stop taking requests; return True if this interrupted a synchronous call."""
        if self._serving is None or self._ending:
            return False
        self._ending = True
        self._serving.cancel()
        was_at_work = bool(self._jobs)
        self._fail(WorkerFailure(_SHUTTING_DOWN))
        return was_at_work

    async def _serve(self) -> None:
        failure: Fault | None = None
        try:
            while self.running and not self._idled_out():
                await self._take_batch()
        except Fault as fault:
            failure = WorkerFailure(fault.message)
        except Exception:
            logger.exception("%s: serving worker %d failed", self._context.name, self.number)
            failure = WorkerFailure(_SHUTTING_DOWN)
        self._ending = True
        self._stop()
        # Callers are answered after this stop, which waits for a loading replacement, and in a deadlock for ever.
        await self.process.stop()
        if failure is not None:
            self._fail(failure)

    async def _take_batch(self) -> None:
        """Wait for requests and answer them.

        Raises:
            Fault: the worker cannot continue; the requests, in `_jobs`, are not answered yet.
        """
        settings = self._context.settings
        size, delay_s = (1, 0.0) if settings.async_mode else (settings.batch_size, settings.max_batch_delay_ms / 1000)
        taken = await self._context.queue.batch(size, delay_s, self._idle_s)
        if not taken:
            return
        self._used_at = time.monotonic()
        self._jobs = [job for job in taken if not job.left]
        if not self._jobs:
            return
        self.busy = True
        try:
            self._context.metrics.batch(job.age_s for job in self._jobs)
            self.process.check_ready()
            if settings.async_mode:
                self._hand_over(self._jobs[0])
                self._jobs = ()
                if settings.min_workers < settings.max_workers:
                    await asyncio.sleep(_HAND_OVER_S)
            else:
                await self._answer(self._jobs)
        except TranslateFault as fault:
            refused, self._jobs = self._jobs, ()
            await self._refuse(refused, fault)
        finally:
            self.busy = False
        self._jobs = ()

    async def _refuse(self, jobs: Sequence[Job], fault: Fault) -> None:
        try:
            await asyncio.sleep(_REFUSAL_S)
        finally:
            fail(jobs, fault)

    async def _answer(self, jobs: Sequence[Job]) -> None:
        timeout_s = self._context.rules.on_our_clock(self._context.settings.predict_timeout_s)
        frame = await self.process.ask(*join(jobs), timeout_s)
        for job, answer in zip(jobs, split(frame, len(jobs)), strict=True):
            if not job.future.done():
                job.future.set_result(answer)

    def _hand_over(self, job: Job) -> None:
        """Pass a request to an asynchronous handler; give up if it sends nothing for `chunked_read_timeout_s`."""
        tracking = {"request_tracking_id": str(uuid.uuid4())}
        answer = AsyncAnswer(dict(tracking))
        loop = asyncio.get_running_loop()
        timeout_s = self._context.rules.on_our_clock(self._context.rules.chunked_read_timeout_s)
        timer = loop.call_later(timeout_s, job.give_up)

        def take(frame: Frame | None) -> bool:
            nonlocal timer
            timer.cancel()
            try:
                take_part(job, answer, frame)
            except Fault as fault:
                fail([job], fault)
            if not job.future.done():
                timer = loop.call_later(timeout_s, job.give_up)
            return job.future.done()

        self.process.call(job.properties | tracking, job.contents, take)

    def _idled_out(self) -> bool:
        return self._idle_s is not None and time.monotonic() - self._used_at > self._idle_s

    def _stop(self) -> None:
        self.running = False
        self.stopped_at = time.monotonic()

    def _fail(self, fault: Fault) -> None:
        fail(self._jobs, fault)
        self._jobs = ()
