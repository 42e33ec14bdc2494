"""Two passes at once, as on a GPU: the second is launched before the first is read, with separate errors."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from test_handler_engine import FakeForward, outputs, run, sequences
from test_handler_watchdog import noted, watched

from cohost.handler.cohost_errors import BusyError, MemoryExhaustedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cohost.handler.cohost_engine import Engine
    from cohost.handler.cohost_forward import Pending
    from cohost.handler.cohost_frames import TokenSequence
    from cohost.handler.cohost_tasks import Floats

OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory")
LOST = RuntimeError("CUDA error: device-side assert triggered")
Failing = dict[int, Exception]


class FakeGpu(FakeForward):
    """Launches at once; a pass is read when `gate` opens; it fails at launch or read by its first tokens."""

    depth = 2

    def __init__(self, at_launch: Failing | None = None, at_read: Failing | None = None) -> None:
        super().__init__()
        self.gate.clear()
        self.read: list[list[int]] = []
        self._at_launch, self._at_read = at_launch or {}, at_read or {}
        self._most = threading.Semaphore(0)

    def launch(self, sequences: Sequence[TokenSequence]) -> Pending:
        """A pass that runs."""
        firsts = [one.encoded.ids[0].item() for one in sequences]
        self.batches.append(firsts)
        self.entered.release()
        _raise(self._at_launch, firsts)

        def read() -> list[Floats]:
            self.gate.wait(60)
            self.read.append(firsts)
            _raise(self._at_read, firsts)
            return [one.encoded.ids[:1].astype("float32") for one in sequences]

        return SimpleNamespace(read=read)  # type: ignore[return-value] # a stand-in


def _raise(failing: Failing, firsts: list[int]) -> None:
    for first in firsts:
        if first in failing:
            raise failing[first]


async def launched(
    engine: Engine, forward: FakeGpu, *requests: tuple[int, ...], into: list[asyncio.Task[Any]] | None = None
) -> list[asyncio.Task[Any]]:
    """Requests, the first two of which run while neither is read."""
    tasks: list[asyncio.Task[Any]] = [] if into is None else into
    for number, firsts in enumerate(requests):
        tasks.append(asyncio.create_task(engine.run(sequences(*firsts))))
        if number < forward.depth:
            await asyncio.to_thread(forward.entered.acquire)
    await asyncio.sleep(0)
    return tasks


def test_the_next_pass_is_launched_while_the_last_one_runs() -> None:
    """A second pass is launched while the first runs, and a third waits to collect more requests."""
    forward = FakeGpu()

    async def scenario(engine: Engine) -> None:
        tasks = await launched(engine, forward, (1,), (2,), (3,), (4,))
        assert (forward.batches, forward.read) == ([[1], [2]], [])
        forward.gate.set()
        assert [outputs(await task) for task in tasks] == [[1], [2], [3], [4]]

    assert run(forward, scenario).passes == 3
    assert forward.batches == [[1], [2], [3, 4]]


@pytest.mark.parametrize(
    ("forward", "failed"),
    [
        (FakeGpu(at_read={1: ValueError("bad")}), 0),
        (FakeGpu(at_read={2: ValueError("bad")}), 1),
        (FakeGpu(at_launch={2: OUT_OF_MEMORY}), 1),
    ],
    ids=["first at its end", "second at its end", "second at its launch"],
)
def test_an_error_is_that_of_its_own_pass(forward: FakeGpu, failed: int) -> None:
    """An error affects only the requests of its own pass whose sequences fail alone."""

    async def scenario(engine: Engine) -> None:
        tasks = await launched(engine, forward, (1, 11), (2, 12))
        beside = asyncio.create_task(engine.run(sequences(3)))
        forward.gate.set()
        results = await asyncio.gather(*tasks, beside, return_exceptions=True)
        assert [isinstance(result, Exception) for result in results] == [failed == 0, failed == 1, False]
        if forward._at_launch:
            assert isinstance(results[failed], MemoryExhaustedError)

    run(forward, scenario)
    assert [[2, 12], [1, 11]][failed] in forward.read


def test_what_ran_out_of_memory_runs_again_when_nothing_else_does() -> None:
    """The halves of a pass that ran out of memory wait until the other pass has freed its memory."""
    forward = FakeGpu(at_launch={2: OUT_OF_MEMORY})

    async def scenario(engine: Engine) -> None:
        tasks = await launched(engine, forward, (1,), (12, 2))
        assert forward.batches == [[1], [12, 2]]
        forward._at_launch.clear()
        forward.gate.set()
        assert [outputs(await task) for task in tasks] == [[1], [12, 2]]

    run(forward, scenario)
    assert forward.batches == [[1], [12, 2], [12], [2]]


@pytest.mark.parametrize("forward", [FakeGpu(at_launch={2: LOST}), FakeGpu(at_read={1: LOST})])
def test_a_lost_device_ends_the_process_before_anybody_is_refused(forward: FakeGpu) -> None:
    """Whichever call of the driver notices it, and once; in a process that goes on, the failed and the waiting hear it.

    The results of the pass beside the failed one are good if they can still be read.
    """
    exits: list[list[bool]] = []
    tasks: list[asyncio.Task[Any]] = []

    async def scenario(engine: Engine) -> None:
        await launched(engine, forward, (1,), (2,), (3,), into=tasks)
        while forward._at_launch and engine._refusal is None:  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0)
        forward.gate.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        failed = 1 if forward._at_launch else 0
        assert [type(results[index]) for index in (failed, 2)] == [BusyError] * 2
        assert outputs(results[1 - failed]) == [2 - failed]

    run(forward, scenario, lost=lambda: exits.append([task.done() for task in tasks]))
    ((*done,),) = exits
    assert done
    assert not any(done)


def test_a_pass_that_hangs_ends_the_process_with_two_passes_running() -> None:
    """The second pass's time does not begin before the first has ended; the first one's does."""
    exits: list[int] = []
    forward = FakeGpu()

    async def scenario(engine: Engine) -> None:
        tasks = await launched(engine, forward, (1,), (2,), (3,))
        await noted(exits)
        assert not any(task.done() for task in tasks)

    watched(forward, scenario, exits)
    assert exits == [4]


def test_the_watchdog_sees_the_pass_that_the_device_works_on() -> None:
    """The time limit of a pass starts at the end of the pass before it."""
    forward = FakeGpu()

    async def scenario(engine: Engine) -> None:
        await launched(engine, forward, (1,), (2,))
        scheduler, (first, second) = engine._scheduler, engine._running
        assert scheduler.watched == [first.watched]
        with engine._changed:
            launched_first = scheduler._running.pop(0)
            assert scheduler.watched == [second.watched]
            scheduler._running.insert(0, launched_first)
        forward.gate.set()

    run(forward, scenario)


def test_stopping_answers_the_passes_that_run() -> None:
    """A stopping engine answers running passes and rejects waiting requests."""
    forward = FakeGpu()

    async def scenario(engine: Engine) -> None:
        tasks = await launched(engine, forward, (1,), (2,), (3,))
        stopped = asyncio.create_task(asyncio.to_thread(engine.stop))
        while engine._refusal is None:  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0)
        forward.gate.set()
        await stopped
        assert [outputs(await task) for task in tasks[:2]] == [[1], [2]]
        with pytest.raises(BusyError, match="shutting down"):
            await tasks[2]

    run(forward, scenario)


def test_stopping_refuses_the_halves_that_wait() -> None:
    """A stopping engine rejects the waiting halves of a pass like requests in the queue."""
    forward = FakeGpu(at_launch={2: OUT_OF_MEMORY})

    async def scenario(engine: Engine) -> None:
        tasks = await launched(engine, forward, (1,), (2, 12))
        while not engine._halves:  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0)
        stopped = asyncio.create_task(asyncio.to_thread(engine.stop))
        with pytest.raises(BusyError, match="shutting down"):
            await tasks[1]
        forward.gate.set()
        assert outputs(await tasks[0]) == [1]
        await stopped

    run(forward, scenario)
