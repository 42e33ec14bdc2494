"""Requests that wait for a worker of one model: jobs, batches, the split of their answers, and the queue.

The order of the queue is not first in, first out. DJL Serving keeps requests in a Java PriorityBlockingQueue, a heap,
and all requests have the same priority. Taking the heap's head moves its *last* element to the front (Java SE 17 API;
recorded: 20_queue_order). So while the worker is busy, the newest request in the queue comes next, and the oldest can
wait as long as requests arrive. A load test shows the same order in the emulator and on the real server.

Source: DJL Serving 0.36.0 (PyPredictor, Request), recorded (tests/data/djl_vectors, tests/data/djl_lifecycle).
"""

from __future__ import annotations

import asyncio
import re
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local_aws.lmi.answers import Answer, Unanswered, compact
from local_aws.lmi.errors import TranslateFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local_aws.lmi.errors import Fault
    from local_aws.lmi.workers.connection import Content, Frame


_BATCH_KEY = re.compile(r"batch_([0-9]+)\.(.*)", re.DOTALL)
_OK = 200
_SERVER_ERROR = 500
_FIRST_ERROR = 300
_ENGINE_FAILURE = {
    "code": 500,
    "message": "Inference Engine Failure",
    "properties": {},
    "content": {"keys": [], "values": []},
    "cancelled": False,
}


@dataclass(eq=False, slots=True)
class Job:
    """One request: `properties` are its headers and the server's additions, `contents` its query and body."""

    properties: dict[str, str]
    contents: Sequence[Content]
    future: asyncio.Future[Answer]
    arrived_at: float = field(default_factory=time.perf_counter)
    left: bool = False

    def leave(self) -> None:
        """Record that the caller has closed its connection; a worker skips the job unless work on it has begun."""
        self.left = True
        self.give_up()

    def give_up(self) -> None:
        """End the wait for an answer with Unanswered, unless the request is answered."""
        if not self.future.done():
            self.future.set_exception(Unanswered())

    @property
    def age_s(self) -> float:
        """Return the seconds since the request arrived."""
        return time.perf_counter() - self.arrived_at


def join(jobs: Sequence[Job]) -> tuple[dict[str, str], list[Content]]:
    """Return a batch's properties and contents as one request; if it has several jobs, keys start with `batch_NNN.`."""
    if len(jobs) == 1:
        return dict(jobs[0].properties), list(jobs[0].contents)
    properties = {"batch_size": str(len(jobs))}
    contents: list[Content] = []
    for index, job in enumerate(jobs):
        prefix = f"batch_{index:03d}."
        properties |= {prefix + name: value for name, value in job.properties.items()}
        contents += [(f"{prefix}{key or 'data'}", value) for key, value in job.contents]
    return properties, contents


def split(frame: Frame, size: int) -> list[Answer]:
    """Split the answer to a batch of `size` requests into one answer each; an error is the answer to every request.

    Raises:
        TranslateFault: there are more or fewer answers than requests, or an answer's key names no request.
    """
    if size == 1 or frame.head["code"] >= _FIRST_ERROR:
        return [_answer(frame, frame.contents)] * size
    if len(frame.contents) != size:
        raise TranslateFault(f"Batch output size mismatch, expected: {size}, actual: {len(frame.contents)}")
    owned: list[list[Content]] = [[] for _ in range(size)]
    for key, value in frame.contents:
        match = _BATCH_KEY.fullmatch(key or "")
        if match is None or int(match[1]) >= size:
            raise TranslateFault(f"Unexpected batch output key: {key}")
        owned[int(match[1])].append((match[2], value))
    return [_answer(frame, contents) for contents in owned]


@dataclass(slots=True)
class AsyncAnswer:
    """The answer of an asynchronous handler, which comes in parts and is complete once a part is marked as the last."""

    properties: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)

    def add(self, frame: Frame) -> Answer | None:
        """Add a part of the answer; return the whole answer once it is complete, else None."""
        self.properties |= frame.head["properties"]
        code, message = frame.head["code"], frame.head["message"]
        if code != _OK or not frame.contents:
            return Answer(code, f"Async Inference Failure {message}", self.properties, bytes(self.body))
        part = _read_entries(frame.contents[0][1])
        if "code" in part:
            return _async_error(part, self.properties)
        self.body += part.get("data", "").encode()
        done = part.get("last", "").lower() == "true"
        return Answer(_OK, "OK", self.properties, bytes(self.body)) if done else None

    def broken(self) -> Answer:
        """Return the answer to a call whose process has ended (recording 27); it keeps the parts that came before."""
        properties = self.properties if self.body else {}
        return Answer(_SERVER_ERROR, "OK", properties, bytes(self.body) + compact(_ENGINE_FAILURE).encode())


def take_part(job: Job, answer: AsyncAnswer, frame: Frame | None) -> None:
    """Add a part to a job's asynchronous answer, and finish the job once the answer is complete.

    `frame` is the part; None means that the worker's process has ended, which completes the answer as an error.

    Raises:
        TranslateFault: the part is not in the form of Output.binary_encode, or its code is not a status.
    """
    whole = answer.broken() if frame is None else answer.add(frame)
    if whole is not None and not job.future.done():
        job.future.set_result(whole)


def fail(jobs: Sequence[Job], fault: Fault) -> None:
    """Answer every request that has no answer yet with a fault."""
    for job in jobs:
        if not job.future.done():
            job.future.set_exception(fault)


def _async_error(part: dict[str, str], properties: dict[str, str]) -> Answer:
    if not part["code"].isascii() or not part["code"].isdigit():
        raise TranslateFault(f"An asynchronous handler answered with the code {part['code']!r}; it must be a status")
    code = int(part["code"])
    error = {"error": part["error"]} if "error" in part else {}
    return Answer(code, part.get("error", "OK"), properties, compact(error | {"code": code}).encode())


def _answer(frame: Frame, contents: Sequence[Content]) -> Answer:
    head = frame.head
    body = next((value for key, value in contents if key == "data"), contents[0][1] if contents else b"")
    return Answer(head["code"], head["message"], head["properties"], body)


def _read_entries(data: bytes) -> dict[str, str]:
    """Return the entries that `Output.binary_encode` wrote."""
    texts = []
    try:
        (count,) = struct.unpack_from(">h", data)
        start = 2
        for _ in range(2 * count):
            (length,) = struct.unpack_from(">i", data, start)
            texts.append(data[start + 4 : start + 4 + length].decode("utf-8"))
            start += 4 + length
    except (struct.error, UnicodeDecodeError) as error:
        raise TranslateFault("An asynchronous handler must answer with Output.binary_encode") from error
    return dict(zip(texts[::2], texts[1::2], strict=True))


class JobQueue:
    """The queue of a model's requests that wait for a worker."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._jobs)

    def offer(self, job: Job) -> None:
        """Add a request and wake one waiting worker."""
        self._jobs.append(job)
        self._wake()

    async def batch(self, size: int, delay_s: float, idle_s: float | None) -> list[Job]:
        """Take up to `size` requests: wait for the first, then at most `delay_s` seconds until the batch is full.

        The batch is empty if no request arrives within `idle_s` seconds (None: without limit).
        """
        first = await self._take(idle_s)
        if first is None:
            return []
        jobs = [first]
        try:
            await self._fill(jobs, size, delay_s)
        except BaseException:
            # The worker that collected these requests has ended; another worker takes them.
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
        """Remove and return all waiting requests."""
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
            # If a worker was woken for a request and then cancelled, another worker must be woken.
            if future.done() and not future.cancelled():
                self._wake()
            elif future in self._waiting:  # if not, `_wake` has skipped this future since its cancellation
                self._waiting.remove(future)
            raise

    def _wake(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return

    def _poll(self) -> Job:
        """Take one request as from Java's heap of equal priorities: remove the head; the last element becomes head."""
        last = self._jobs.pop()
        if not self._jobs:
            return last
        head, self._jobs[0] = self._jobs[0], last
        return head
