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


class FakeForward:
    """Gives each sequence its first token back; waits for `gate` before each batch; raises what `fail` says."""

    def __init__(self, fail: Callable[[list[int]], Exception | None] = lambda _: None) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.freed = 0
        self._fail = fail
        self.gate.set()

    def packs(self, _sequence: TokenSequence) -> bool:
        """It pads."""
        return False

    def length_of(self, sequence: TokenSequence) -> int:
        """What the caller sent, and no more."""
        return sequence.length

    def tokens_of(self, sequences: Sequence[TokenSequence]) -> int:
        """As many as after padding."""
        return len(sequences) * max(one.length for one in sequences)

    def free_memory(self) -> None:
        """Counts."""
        self.freed += 1

    depth = 1

    def launch(self, sequences: Sequence[TokenSequence]) -> Pending:
        """A batch, which has ended when this returns."""
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
    """Sequences of a request, told apart by their first token."""
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
    """Lets a scenario use an engine; what it counted."""
    settings: dict[str, Any] = {
        "max_batch_tokens": 4096,
        "max_batch_sequences": 64,
        "floor_tokens": LIMIT,
        "pass_cost": 64,
        "max_queued_sequences": 1000,
        "max_queue_time_s": 600.0,
    }
    counters = Counters()

    async def main() -> None:
        made = EngineSettings(**settings | given)
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
    """Has the engine at work on a batch that waits for the gate, so that what comes now is queued."""
    forward.gate.clear()
    task = asyncio.create_task(engine.run(sequences(0)))
    await asyncio.to_thread(forward.entered.acquire)
    return task


async def told(exits: list[str]) -> None:
    """Waits until the engine has asked for a new process, which it does after the last answer."""
    while not exits:  # noqa: ASYNC110 - the engine's thread has it appended
        await asyncio.sleep(0.005)


def outputs(outcome: Any) -> list[float]:
    """An outcome's numbers."""
    return [float(output[0]) for output in outcome.outputs]


def test_what_waits_runs_in_one_batch_and_each_gets_its_own() -> None:
    """Twelve requests that come while the device is busy are one pass, and their answers are not mixed up."""
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
    """Sequences are run by length, over several batches, and put back in place."""
    forward = FakeForward()

    async def scenario(engine: Engine) -> None:
        mixed = [one for length in (500, 3, 200, 4) for one in sequences(length, length=length)]
        for index, one in enumerate(mixed):
            one.index = index
        assert outputs(await engine.run(mixed)) == [500, 3, 200, 4]

    run(forward, scenario)
    assert len(forward.batches) > 1


def test_a_tiny_request_waits_for_one_batch_more_than_the_one_that_runs() -> None:
    """Twenty texts with forty labels each are in the queue; a single text is in the next batch but one at most."""
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
    """A batch over a size fails as on a GPU; its halves fit, and later batches are smaller at once."""
    forward = FakeForward(lambda firsts: MemoryError("CUDA out of memory") if len(firsts) > 8 else None)

    async def scenario(engine: Engine) -> None:
        for _ in range(2):
            assert outputs(await engine.run(sequences(*range(32), length=256))) == list(range(32))

    counters = run(forward, scenario, max_batch_tokens=8192)
    assert counters.memory_errors >= 1
    assert forward.freed == counters.memory_errors
    assert max(map(len, forward.batches[-4:])) <= 8


def test_a_sequence_that_never_fits_answers_507_and_its_neighbours_are_served() -> None:
    """Only the request with that sequence is told; the others in its batch do not notice."""
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
    """Any other error is narrowed down in the same way, and named."""
    forward = FakeForward(lambda firsts: IndexError("index out of range") if 5 in firsts else None)

    async def scenario(engine: Engine) -> None:
        results = await asyncio.gather(*(engine.run(sequences(n)) for n in (4, 5, 6)), return_exceptions=True)
        assert isinstance(results[1], ModelError)
        assert "IndexError: index out of range" in str(results[1])
        assert [outputs(results[0]), outputs(results[2])] == [[4], [6]]

    run(forward, scenario)


def test_a_number_that_is_not_finite_never_leaves() -> None:
    """NaN is the model's fault, not an answer."""

    async def scenario(engine: Engine) -> None:
        with pytest.raises(ModelError, match="not a finite number; load it with dtype fp32"):
            await engine.run(sequences(1, -1))

    run(FakeForward(), scenario)


def test_a_cancelled_request_takes_no_more_of_the_device() -> None:
    """Its sequences that wait are never run; the next request is served at once."""
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
    """The limit of the time in the queue is told, and the request's place is freed."""
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
    """What is over the capacity is refused, and what waits is served."""
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
    """Those in the batch, those in the queue, and those who come later get 503; nothing is tried again."""
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
    """Whatever ends the engine's thread, those in the batch and those in the queue hear of it and the worker goes."""
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
