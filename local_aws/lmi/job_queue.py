"""The queue of one model's requests, in the order in which the real server takes them out.

That order is not first in, first out. DJL Serving keeps requests in a Java PriorityBlockingQueue, and all of them have
the same priority: taking the head of such a heap moves its *last* element to the front (Java SE 17 API; recorded:
20_queue_order). So behind a busy worker the newest request goes next and the oldest may wait for as long as requests
keep coming. A load test on this machine shows that, as it would show against the real server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local_aws.lmi.jobs import Job


class JobQueue:
    """Requests that wait for a worker."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._jobs)

    def offer(self, job: Job) -> None:
        """Adds a request and wakes a worker that waits."""
        self._jobs.append(job)
        self._wake()

    async def batch(self, size: int, delay_s: float, idle_s: float | None) -> list[Job]:
        """Up to `size` requests: waits for the first, then for `delay_s` at most until the batch is full.

        Empty when none came within `idle_s` seconds (None: waits on).
        """
        first = await self._take(idle_s)
        if first is None:
            return []
        jobs = [first]
        try:
            await self._fill(jobs, size, delay_s)
        except BaseException:
            # The worker that collected them is gone; another one takes them.
            for job in jobs:
                self.offer(job)
            raise
        return jobs

    async def _fill(self, jobs: list[Job], size: int, delay_s: float) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + delay_s
        while len(jobs) < size:
            job = self._poll() if self._jobs else await self._take(deadline - clock())
            if job is None:
                return
            jobs.append(job)

    def drain(self) -> Sequence[Job]:
        """Takes everything out."""
        jobs, self._jobs = self._jobs, []
        return jobs

    async def _take(self, timeout_s: float | None) -> Job | None:
        try:
            async with asyncio.timeout(timeout_s):
                while not self._jobs:
                    await self._signal()
        except TimeoutError:
            return None
        return self._poll()

    async def _signal(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            # A worker that goes away must not swallow the call that woke it.
            if future.done() and not future.cancelled():
                self._wake()
            elif future in self._waiting:  # else a call has passed over it, between its end and this line
                self._waiting.remove(future)
            raise

    def _wake(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return

    def _poll(self) -> Job:
        """Java's heap with equal priorities: the head goes, the last element takes its place."""
        last = self._jobs.pop()
        if not self._jobs:
            return last
        head, self._jobs[0] = self._jobs[0], last
        return head
