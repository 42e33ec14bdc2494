"""Batches are joined and split, and the queue gives requests out in the real server's order."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any, cast

import pytest
from fakes.faults import faulted

from local_aws.lmi.answers import Answer
from local_aws.lmi.handler_api import Output
from local_aws.lmi.workers.connection import Frame
from local_aws.lmi.workers.jobs import AsyncAnswer, Job, JobQueue, join, split, take_part


def _job(body: bytes) -> Job:
    return Job({"Content-Type": "application/json"}, [("data", body)], cast("Any", None))


def _frame(*contents: tuple[str | None, bytes], code: int = 200) -> Frame:
    return Frame({"id": 1, "code": code, "message": "m", "properties": {"X": "v"}}, contents)


def test_a_single_request_keeps_its_keys() -> None:
    """A single request is passed without prefixes: a handler sees "data" and plain header names."""
    assert join([_job(b"1")]) == ({"Content-Type": "application/json"}, [("data", b"1")])


def test_a_batch_prefixes_every_key() -> None:
    """Recorded (21_handler_properties): batch_000.Content-Type, batch_001.data, batch_size."""
    properties, contents = join([_job(b"1"), _job(b"2")])
    assert properties == {
        "batch_size": "2",
        "batch_000.Content-Type": "application/json",
        "batch_001.Content-Type": "application/json",
    }
    assert contents == [("batch_000.data", b"1"), ("batch_001.data", b"2")]


def test_answers_find_their_requests_by_key() -> None:
    """Answers of a batch are assigned by key, and not by order."""
    answers = split(_frame(("batch_1.x", b"b"), ("batch_000.data", b"a")), 2)
    assert [answer.body for answer in answers] == [b"a", b"b"]


def test_an_error_is_everybodys() -> None:
    """A handler that fails fails the whole batch, as recorded (08)."""
    assert split(_frame((None, b"e"), code=424), 3) == [Answer(424, "m", {"X": "v"}, b"e")] * 3


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        ([("batch_0.a", b"")], "Batch output size mismatch, expected: 2, actual: 1"),
        ([("batch_0.a", b""), ("b", b"")], "Unexpected batch output key: b"),
        ([("batch_0.a", b""), ("batch_7.b", b"")], "Unexpected batch output key: batch_7.b"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(contents: list[tuple[str | None, bytes]], text: str) -> None:
    """A batch with a wrong number of answers fails, so nobody gets another request's answer (recorded: 19)."""
    with faulted("TranslateException", 400, text):
        split(_frame(*contents), 2)


def test_an_asynchronous_answer_is_whole_with_its_last_part() -> None:
    """The parts of an asynchronous answer are joined up to the last part."""
    answer = AsyncAnswer({"request_tracking_id": "7"})
    assert answer.add(_frame((None, bytes(Output.binary_encode({"data": "a", "last": False}))))) is None
    whole = answer.add(_frame((None, bytes(Output.binary_encode({"data": "b", "last": True})))))
    assert whole == Answer(200, "OK", {"request_tracking_id": "7", "X": "v"}, b"ab")


def test_an_asynchronous_error_carries_its_status() -> None:
    """An asynchronous error has its code as status, and its text as reason and body (recorded: 23)."""
    part = Output.binary_encode({"data": "", "last": True, "code": 400, "error": "no"})
    answer = AsyncAnswer().add(_frame((None, bytes(part))))
    assert answer is not None
    assert (answer.code, answer.message, answer.body) == (400, "no", b'{"error":"no","code":400}')


def test_a_malformed_asynchronous_answer_is_a_fault() -> None:
    """An asynchronous answer without binary_encode is an error of its request only."""
    with faulted("TranslateException", 400, "binary_encode"):
        AsyncAnswer().add(_frame((None, b"\x00\x02oops")))


def test_an_asynchronous_code_that_is_no_status_is_a_fault() -> None:
    """A status code that is none fails only its own request, not the connection of all requests."""
    part = Output.binary_encode({"data": "", "last": True, "code": "bad"})
    with faulted("TranslateException", 400, "'bad'"):
        AsyncAnswer().add(_frame((None, bytes(part))))


def test_a_dead_worker_ends_an_asynchronous_call() -> None:
    """A call whose worker has died gets 500 after its received parts (recorded: 27)."""

    async def scenario() -> tuple[int, bytes]:
        job = Job({}, [("data", b"")], asyncio.get_running_loop().create_future())
        take_part(job, AsyncAnswer({"request_tracking_id": "1"}), None)
        answer = await job.future
        assert answer.properties == {}
        return answer.code, answer.body

    code, body = asyncio.run(scenario())
    assert (code, len(body)) == (500, 117)


class LoopWithoutWaiting(asyncio.SelectorEventLoop):
    """An event loop whose time advances only while it would wait, so no machine is too slow for it."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Return the time that the loop has waited."""
        return self._now

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds


class _Jumping(selectors.SelectSelector):
    """Waits for nothing."""

    def __init__(self, loop: LoopWithoutWaiting) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        """Take the requests that are ready now."""
        self._loop.jump(timeout or 0.0)
        return super().select(0)


def _offer(queue: JobQueue, *jobs: int) -> None:
    for job in jobs:
        queue.offer(cast("Any", job))


def test_requests_behind_a_busy_worker_leave_in_the_order_of_javas_heap() -> None:
    """Recorded on the real server (20_queue_order): 0, 1, 11, 10, …, 2."""

    async def scenario() -> list[Any]:
        queue = JobQueue()
        _offer(queue, 0)
        order = await queue.batch(1, 0, None)
        _offer(queue, *range(1, 12))
        while len(queue):
            order += await queue.batch(1, 0, None)
        return order

    assert asyncio.run(scenario()) == [0, 1, *range(11, 1, -1)]


def test_a_full_batch_does_not_wait() -> None:
    """A full batch of eight requests runs at once, whatever max_batch_delay is."""

    async def scenario() -> int:
        queue = JobQueue()
        _offer(queue, *range(8))
        async with asyncio.timeout(60):
            return len(await queue.batch(8, 3600, None))

    assert asyncio.run(scenario()) == 8


def test_a_batch_waits_for_late_requests_only_so_long() -> None:
    """A batch collects requests up to max_batch_delay."""

    async def scenario() -> tuple[list[Any], float]:
        queue = JobQueue()
        loop = asyncio.get_running_loop()
        _offer(queue, 1)
        loop.call_later(0.02, _offer, queue, 2)
        start = loop.time()
        return await queue.batch(8, 0.1, None), loop.time() - start

    with asyncio.Runner(loop_factory=LoopWithoutWaiting) as runner:
        jobs, waited = runner.run(scenario())
    assert jobs == [1, 2]
    assert waited == pytest.approx(0.1)


def test_an_idle_queue_gives_an_empty_batch() -> None:
    """A temporary worker gets an empty batch after its idle time."""
    assert asyncio.run(JobQueue().batch(1, 0, 0.01)) == []


def test_a_cancelled_worker_gives_its_requests_back() -> None:
    """A worker that is cancelled while it collects a batch returns the requests to the queue."""

    async def scenario() -> list[Any]:
        queue = JobQueue()
        _offer(queue, 1, 2)
        collecting = asyncio.create_task(queue.batch(8, 60, None))
        await asyncio.sleep(0.01)
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
        return await queue.batch(2, 1, None)

    assert asyncio.run(scenario()) == [1, 2]


def test_a_cancelled_worker_passes_its_wake_up_on() -> None:
    """If a worker is cancelled at the moment of its wake-up, another worker takes the request."""

    async def scenario() -> list[Any]:
        queue = JobQueue()
        first, second = (asyncio.create_task(queue.batch(1, 0, None)) for _ in range(2))
        await asyncio.sleep(0.01)
        _offer(queue, 1)
        first.cancel()
        async with asyncio.timeout(60):
            return await second

    assert asyncio.run(scenario()) == [1]


def test_a_request_that_comes_as_a_wait_ends_is_kept() -> None:
    """A request that arrives at the end of a wait stays in the queue."""

    async def scenario() -> list[Any]:
        queue = JobQueue()
        waiting = asyncio.create_task(queue.batch(1, 0, None))
        await asyncio.sleep(0)
        waiting.cancel()
        _offer(queue, 1)
        ended = await asyncio.gather(waiting, return_exceptions=True)
        assert [type(end) for end in ended] == [asyncio.CancelledError]
        return await queue.batch(1, 0, None)

    assert asyncio.run(scenario()) == [1]


def test_arrivals_at_any_moment_of_short_delays_are_all_taken() -> None:
    """With very short delays each request of a stream leaves in exactly one batch."""

    async def scenario() -> list[Any]:
        queue = JobQueue()
        taken: list[Any] = []

        async def serve() -> None:
            while len(taken) < 2000:
                taken.extend(await queue.batch(4, 0.0002, None))

        serving = asyncio.create_task(serve())
        for number in range(2000):
            _offer(queue, number)
            await asyncio.sleep(0.0001 if number % 3 else 0)
        await asyncio.wait_for(serving, 120)
        return taken

    assert sorted(asyncio.run(scenario())) == list(range(2000))
