"""Batches through a model that is a function: order, fairness, errors, cancelled callers, lost devices."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cohost.handler import cohost_engine
from cohost.handler.cohost_batches import Counters
from cohost.handler.cohost_engine import Engine, EngineSettings
from cohost.handler.cohost_errors import BusyError, MemoryExhaustedError, ModelError
from cohost.handler.cohost_frames import Level, TokenSequence
from cohost.handler.cohost_scheduler import Lanes, Scheduler
from cohost.handler.cohost_tasks import Want
from cohost.handler.cohost_tokenizer import Encoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from cohost.handler.cohost_forward import Pending
    from cohost.handler.cohost_tasks import Floats

LIMIT = 512
SETTINGS: dict[str, Any] = {
    "max_batch_tokens": 4096,
    "max_batch_sequences": 64,
    "floor_tokens": LIMIT,
    "pass_cost": 64,
    "max_queued_sequences": 1000,
    "max_queue_time_s": 600.0,
}


class FakeForward:
    """Answers a sequence with its first token; waits for `gate` before a batch; raises `fail`."""

    def __init__(self, fail: Callable[[list[int]], Exception | None] = lambda _: None) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.freed = 0
        self._fail = fail
        self.gate.set()

    def packs(self, _sequence: TokenSequence) -> bool:
        """Return False, because this model pads."""
        return False

    def length_of(self, sequence: TokenSequence) -> int:
        """Return the number that the caller sent."""
        return sequence.length

    def tokens_of(self, sequences: Sequence[TokenSequence]) -> int:
        """Return the number of tokens after padding."""
        return len(sequences) * max(one.length for one in sequences)

    def free_memory(self) -> None:
        """Count the call."""
        self.freed += 1

    depth = 1

    def launch(self, sequences: Sequence[TokenSequence]) -> Pending:
        """Return a finished batch."""
        outputs = self._run(sequences)
        return SimpleNamespace(read=lambda: outputs)  # type: ignore[return-value] # a stand-in

    def _run(self, sequences: Sequence[TokenSequence]) -> list[Floats]:
        firsts = [one.encoded.ids[0] for one in sequences]
        self.batches.append(firsts)
        self.entered.release()
        self.gate.wait(60)
        error = self._fail(firsts)
        if error is not None:
            raise error
        return [np.asarray([np.nan if first < 0 else first], dtype=np.float32) for first in firsts]


def sequences(*firsts: int, length: int = 10) -> list[TokenSequence]:
    """Return sequences of a request, which differ by their first token."""
    return [
        TokenSequence(Encoded(np.full(length, first, np.int32), None, truncated=False), length, Want.LOGITS, index)
        for index, first in enumerate(firsts)
    ]


def run(
    forward: FakeForward,
    scenario: Callable[[Engine], Awaitable[Any]],
    lost: Callable[[], None] = lambda: None,
    **given: Any,
) -> Counters:
    """Run a scenario with an engine, and return its counters."""
    counters = Counters()

    async def main() -> None:
        made = EngineSettings(**SETTINGS | given)
        scheduler = Scheduler(Lanes(depth=forward.depth))
        engine = Engine(forward, made, counters, lost, scheduler)  # type: ignore[arg-type] # a stand-in
        try:
            await asyncio.wait_for(scenario(engine), 60)
        finally:
            forward.gate.set()
            engine.stop()
            scheduler.close()

    asyncio.run(main())
    return counters


async def busy(engine: Engine, forward: FakeForward) -> asyncio.Task[Any]:
    """Keep the engine in a batch that waits for the gate, so that further requests queue."""
    forward.gate.clear()
    task = asyncio.create_task(engine.run(sequences(0)))
    await asyncio.to_thread(forward.entered.acquire)
    return task


async def told(exits: list[str]) -> None:
    """Wait until the engine has requested a new process, after its last answer."""
    while not exits:  # noqa: ASYNC110 - the engine's thread has it appended
        await asyncio.sleep(0.005)


def outputs(outcome: Any) -> list[float]:
    """An outcome's numbers."""
    return [float(output[0]) for output in outcome.outputs]


def test_what_waits_runs_in_one_batch_and_each_gets_its_own() -> None:
    """Twelve requests that arrive during a pass run in one pass, and each gets its own answer."""
    forward = FakeForward()

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        waiting = [asyncio.create_task(engine.run(sequences(n, n + 100))) for n in range(1, 13)]
        await asyncio.sleep(0.01)
        forward.gate.set()
        await first
        assert [outputs(await task) for task in waiting] == [[n, n + 100] for n in range(1, 13)]

    counters = run(forward, scenario)
    assert (counters.passes, counters.sequences) == (2, 25)


def test_answers_keep_the_callers_order_whatever_order_they_ran_in() -> None:
    """Sequences run sorted by length in several batches, and the answers are in the caller's order."""
    forward = FakeForward()

    async def scenario(engine: Engine) -> None:
        mixed = [one for length in (500, 3, 200, 4) for one in sequences(length, length=length)]
        for index, one in enumerate(mixed):
            one.index = index
        assert outputs(await engine.run(mixed)) == [500, 3, 200, 4]

    run(forward, scenario)
    assert len(forward.batches) > 1


def test_a_tiny_request_waits_for_one_batch_more_than_the_one_that_runs() -> None:
    """A single text behind a large request waits for at most one batch after the running one."""
    forward = FakeForward()

    async def scenario(engine: Engine) -> None:
        forward.gate.clear()
        huge = asyncio.create_task(engine.run(sequences(*range(1, 801), length=60)))
        await asyncio.to_thread(forward.entered.acquire)
        running = len(forward.batches)
        tiny = asyncio.create_task(engine.run(sequences(999, length=5)))
        await asyncio.sleep(0.01)
        forward.gate.set()
        await tiny
        place = next(index for index, batch in enumerate(forward.batches) if 999 in batch)
        assert place - running < 2
        assert len((await huge).outputs) == 800

    run(forward, scenario)


def test_when_memory_runs_out_the_batch_is_halved_and_all_are_served() -> None:
    """A batch that runs out of memory is halved until it fits, and later batches are smaller."""
    forward = FakeForward(lambda firsts: MemoryError("CUDA out of memory") if len(firsts) > 8 else None)

    async def scenario(engine: Engine) -> None:
        for _ in range(2):
            assert outputs(await engine.run(sequences(*range(32), length=256))) == list(range(32))

    counters = run(forward, scenario, max_batch_tokens=8192)
    assert counters.memory_errors >= 1
    assert forward.freed == counters.memory_errors
    assert max(map(len, forward.batches[-4:])) <= 8


def test_a_sequence_that_never_fits_answers_507_and_its_neighbours_are_served() -> None:
    """Only the request whose sequence never fits gets 507, and the other requests of its batch are answered."""
    forward = FakeForward(lambda firsts: MemoryError() if 13 in firsts else None)

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        tasks = [asyncio.create_task(engine.run(sequences(n))) for n in range(1, 20)]
        await asyncio.sleep(0.01)
        forward.gate.set()
        results = await asyncio.gather(first, *tasks, return_exceptions=True)
        failed = [index for index, result in enumerate(results) if isinstance(result, Exception)]
        assert failed == [13]
        assert isinstance(results[13], MemoryExhaustedError)
        assert results[13].status == 507

    run(forward, scenario)


def test_a_model_that_fails_on_one_sequence_answers_500_to_that_one() -> None:
    """Only the request with the sequence on which the model fails gets 500, with the error."""
    forward = FakeForward(lambda firsts: IndexError("index out of range") if 5 in firsts else None)

    async def scenario(engine: Engine) -> None:
        results = await asyncio.gather(*(engine.run(sequences(n)) for n in (4, 5, 6)), return_exceptions=True)
        assert isinstance(results[1], ModelError)
        assert "IndexError: index out of range" in str(results[1])
        assert [outputs(results[0]), outputs(results[2])] == [[4], [6]]

    run(forward, scenario)


def test_a_number_that_is_not_finite_never_leaves() -> None:
    """An output with NaN is an error and no answer."""

    async def scenario(engine: Engine) -> None:
        with pytest.raises(ModelError, match="not a finite number; load it with dtype fp32"):
            await engine.run(sequences(1, -1))

    run(FakeForward(), scenario)


def test_a_cancelled_request_takes_no_more_of_the_device() -> None:
    """The waiting sequences of a cancelled request never run, and the next request is served at once."""
    forward = FakeForward()

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        gone = asyncio.create_task(engine.run(sequences(*range(100, 200))))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        forward.gate.set()
        await first
        assert outputs(await engine.run(sequences(7))) == [7]

    run(forward, scenario)
    assert forward.batches == [[0], [7]]


def test_a_request_that_waits_too_long_answers_503(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request over max_queue_time_ms gets 503 with this limit, and leaves the queue."""
    forward, clock = FakeForward(), SimpleNamespace(time=1000.0)
    monkeypatch.setattr(cohost_engine, "time", SimpleNamespace(monotonic=lambda: clock.time))

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        late = asyncio.create_task(engine.run(sequences(1)))
        await asyncio.sleep(0.01)
        clock.time += 31
        forward.gate.set()
        await first
        with pytest.raises(BusyError, match="waited longer than 30 s"):
            await late
        assert outputs(await engine.run(sequences(2))) == [2]

    run(forward, scenario, max_queue_time_s=30.0)
    assert forward.batches == [[0], [2]]


def test_a_full_queue_answers_503_at_once() -> None:
    """A request over the capacity of the queue gets 503, and the waiting requests are served."""
    forward = FakeForward()

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        waiting = asyncio.create_task(engine.run(sequences(1, 2)))
        await asyncio.sleep(0.01)
        with pytest.raises(BusyError, match="the queue is full: 2 of 3"):
            await engine.run(sequences(3, 4))
        forward.gate.set()
        await asyncio.gather(first, waiting)

    run(forward, scenario, max_queued_sequences=3)


def test_a_lost_device_answers_everybody_and_asks_for_a_new_process() -> None:
    """After the loss of the device all present and later requests get 503, and no pass is repeated."""
    forward = FakeForward(
        lambda firsts: RuntimeError("CUDA error: device-side assert triggered") if 0 in firsts else None
    )
    exits: list[str] = []

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        waiting = asyncio.create_task(engine.run(sequences(1)))
        await asyncio.sleep(0.01)
        forward.gate.set()
        results = await asyncio.gather(first, waiting, return_exceptions=True)
        assert [type(result) for result in results] == [BusyError, BusyError]
        with pytest.raises(BusyError, match=r"^the GPU failed \(RuntimeError: CUDA error: device-side assert"):
            await engine.run(sequences(2))
        await told(exits)

    run(forward, scenario, lost=lambda: exits.append("lost"))
    assert exits == ["lost"]
    assert forward.batches == [[0]]


def test_a_fault_beside_the_model_leaves_nobody_waiting() -> None:
    """If the engine's thread ends, callers in the batch and in the queue get an error, and the worker ends."""
    forward = FakeForward()
    exits: list[str] = []

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        waiting = [asyncio.create_task(engine.run(sequences(number))) for number in (1, 2)]
        await asyncio.sleep(0.01)
        engine._finish = fail  # type: ignore[method-assign] # a fault of our own
        forward.gate.set()
        results = await asyncio.gather(first, *waiting, return_exceptions=True)
        assert [type(result) for result in results] == [BusyError] * 3
        await told(exits)

    def fail(*_: object) -> None:
        raise KeyError("a fault of our own")

    run(forward, scenario, lost=lambda: exits.append("lost"))
    assert exits == ["lost"]


def test_equal_sequences_of_different_requests_are_computed_once() -> None:
    """All that wait with that text are answered by one sequence of the pass; another length or output is not equal."""
    forward = FakeForward()
    other = sequences(5)
    other[0] = TokenSequence(other[0].encoded, 10, Want.MEAN, 0)

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        requests = [sequences(5, 6), sequences(6, 5, 7), sequences(5, length=12), other]
        waiting = [asyncio.create_task(engine.run(request)) for request in requests]
        await asyncio.sleep(0.01)
        forward.gate.set()
        await first
        outcomes = [await task for task in waiting]
        assert [outputs(outcome) for outcome in outcomes] == [[5, 6], [6, 5, 7], [5], [5]]
        assert outcomes[0].batches == [(5, 60)]

    counters = run(forward, scenario)
    assert sorted(forward.batches[1]) == [5, 5, 5, 6, 7]
    assert (counters.passes, counters.sequences, counters.tokens) == (2, 8, 10 + 52)


def test_equal_sequences_fill_no_pass() -> None:
    """A thousand copies of a text that many callers send are one sequence, however many a pass may have."""
    forward = FakeForward()

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        waiting = [asyncio.create_task(engine.run(sequences(7, 7, 7))) for _ in range(40)]
        await asyncio.sleep(0.01)
        forward.gate.set()
        await first
        assert [outputs(await task) for task in waiting] == [[7, 7, 7]] * 40

    run(forward, scenario, max_batch_sequences=64)
    assert forward.batches == [[0], [7]]


def test_a_failing_pass_with_equal_sequences_is_halved_and_each_copy_is_answered() -> None:
    """Every request with the text that fails gets the error, every one without it an answer."""
    forward = FakeForward(lambda firsts: IndexError("index out of range") if 5 in firsts else None)

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        requests = [(4, 5), (6, 4), (5,), (6,), (7, 6, 4)]
        waiting = [asyncio.create_task(engine.run(sequences(*request))) for request in requests]
        await asyncio.sleep(0.01)
        forward.gate.set()
        await first
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [isinstance(result, ModelError) for result in results] == [True, False, True, False, False]
        assert [outputs(results[index]) for index in (1, 3, 4)] == [[6, 4], [6], [7, 6, 4]]

    run(forward, scenario)
    assert forward.batches.count([5]) == 1


@pytest.mark.parametrize(("age_s", "order"), [(0.0, [[0], [2], [1]]), (301.0, [[0], [1], [2]])])
def test_a_bulk_request_waits_for_all_others_until_half_its_time_is_over(age_s: float, order: list[list[int]]) -> None:
    """Then it counts as a usual one, and comes by its age."""
    forward = FakeForward()

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        bulk = asyncio.create_task(engine.run(sequences(1), level=Level.BULK, age_s=age_s))
        await asyncio.sleep(0.01)
        usual = asyncio.create_task(engine.run(sequences(2)))
        await asyncio.sleep(0.01)
        forward.gate.set()
        await asyncio.gather(first, bulk, usual)

    run(forward, scenario, max_queue_time_s=600.0)
    assert forward.batches == order


def test_second_attempts_run_one_by_one_and_before_all_others() -> None:
    """Each may be the one that ended the last process, so each has a pass of its own."""
    forward = FakeForward()

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        tasks = [asyncio.create_task(engine.run(sequences(9)))]
        await asyncio.sleep(0.01)
        tasks += [asyncio.create_task(engine.run(sequences(n, n + 10), level=Level.ALONE)) for n in (1, 2)]
        await asyncio.sleep(0.01)
        forward.gate.set()
        await asyncio.gather(first, *tasks)

    run(forward, scenario)
    assert forward.batches == [[0], [1, 11], [2, 12], [9]]


def test_the_age_of_a_request_counts_towards_its_time_limit() -> None:
    """A request that was sent again has waited in the process that ended."""

    async def scenario(engine: Engine) -> None:
        with pytest.raises(BusyError, match="waited longer than 30 s"):
            await engine.run(sequences(1), age_s=31.0)

    run(FakeForward(), scenario, max_queue_time_s=30.0)


def test_a_pass_names_the_requests_in_it() -> None:
    """Once each, and not those without a name."""
    forward = FakeForward()

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        (running,) = engine._running
        assert running.marks == []
        waiting = [asyncio.create_task(engine.run(sequences(n, n + 1), mark=f"3:{n}")) for n in (1, 5)]
        await asyncio.sleep(0.01)
        with engine._changed:
            one = engine.take(Level.USUAL)
            assert one is not None
            assert one.marks == ["3:1", "3:5"]
            engine._running.remove(one)
            engine._halves.append(one.members)
        forward.gate.set()
        await asyncio.gather(first, *waiting)

    run(forward, scenario)


def test_a_text_of_another_model_waits_for_one_pass_of_a_huge_request_at_most() -> None:
    """Eight hundred sequences of one model wait; a text of the other model, which came later, is in the next pass."""
    huge_forward, tiny_forward = FakeForward(), FakeForward()
    tiny_forward.batches = order = huge_forward.batches

    async def main() -> None:
        scheduler = Scheduler(Lanes())
        engines = [
            Engine(forward, EngineSettings(**SETTINGS), Counters(), lambda: None, scheduler)  # type: ignore[arg-type]
            for forward in (huge_forward, tiny_forward)
        ]
        huge_forward.gate.clear()
        huge = asyncio.create_task(engines[0].run(sequences(*range(1, 801), length=60)))
        await asyncio.to_thread(huge_forward.entered.acquire)
        tiny = asyncio.create_task(engines[1].run(sequences(999, length=5)))
        await asyncio.sleep(0.01)
        huge_forward.gate.set()
        await tiny
        await huge
        for engine in engines:
            engine.stop()
        scheduler.close()

    asyncio.run(main())
    assert order.index([999]) == 1
    assert len(order) > 5
